"""How fast the engine is, beside the machine's matrix products and other simulators on the same work."""
