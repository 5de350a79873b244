"""Triton kernels for a GPU, each with the Python function that launches it. They work on tensors and depend on no model.

In training, tokens are packed: the sentences of a batch follow each other in N rows, without padding between them.
Importing a kernel needs Triton, which comes with torch on machines that have CUDA. Every sum is taken in a fixed order,
so that the same batch always gives the same bits.
"""
