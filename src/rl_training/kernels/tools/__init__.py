"""What compiled code is made with: how numba compiles, elementary functions, matrix products, arrays of tensors."""
