"""Train several clients of a small model at once, as one stack of vectors.

    dropout.py    dropout masks that equal those of the serial path
    model.py      the gradients of all clients of a stack, from stacked parameters and padded batches
    inspection.py decides how the batches of a problem can be stacked
    compiling.py  compiles the step of a stack to machine code, and keeps it between runs
    batches.py    reads the batches of a block of clients, once per round
    work.py       the `Work` of a stack: the algorithm's client function runs on it unchanged
    worker.py     trains a block of clients and returns one weighted sum

`engine/executors/vectorised.py` forms the blocks and distributes them over processes.
"""
