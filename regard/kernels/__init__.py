"""Triton kernels for a GPU, each with the Python that launches it. They know tensors, and no model.

In training, tokens are packed: the sentences of a batch stand one behind the other in N rows, without padding between them.
Importing any of them needs Triton, which comes with torch on machines that have CUDA. Every sum is taken in a fixed order,
so that the same batch always gives the same bits.
"""
