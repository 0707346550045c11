"""What every slice shares: kinds of work, the worker loop, nodes and the drain."""
