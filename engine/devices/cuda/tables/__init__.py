"""Tables of prepared graphs in the memory of a GPU, and answers from them."""
