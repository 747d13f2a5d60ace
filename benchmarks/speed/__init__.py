"""The speed of a round compared with matrix products and with other simulators: python -m benchmarks.speed"""
