"""`fedopt bench`: speed of the engine compared with matrix products and with other simulators."""
