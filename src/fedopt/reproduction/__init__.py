"""The paper's tables and figures, made again: what each needs, how it is drawn, what the paper prints."""
