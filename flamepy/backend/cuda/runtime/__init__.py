"""What every kernel of a GPU rests on: drivers, memory, compilation, arguments, streams."""
