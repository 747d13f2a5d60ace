"""Import public files, or a user's table, into a store.

datasets      the datasets by name, and the options of an import
downloads     download the public files
find_files    list the files of a path, recognise their formats, unpack archives
select_files  choose the files that make up the dataset
encode        convert the fields of a file to the columns of a store
importer      import a dataset: all of these steps
"""
