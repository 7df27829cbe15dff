"""Products of bfloat16 numbers on the CPU, and what is made of them: linear layers, attention, convolution, quicker float32."""
