"""The tools of compiled code: numba's options, elementary functions, matrix products, arrays of tensors."""
