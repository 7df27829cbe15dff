"""What every kernel of the CPU rests on: memory, threads, how functions are compiled and kept, what the doctor is told."""
