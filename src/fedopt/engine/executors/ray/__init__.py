"""The `ray` executor: clients train on the machines of a Ray cluster.

connection   connects to a cluster, or starts one in this process
user_code    sends the user's modules to the nodes
nodes        compares the nodes with this process
slot         the actor that trains clients
slots        starts actors, replaces lost ones and uses nodes that join
pieces       divides a cohort into pieces of work
attempts     which piece runs where; stragglers
executor     the executor itself
"""
