// Giving memory back while its addresses stay: for values of a Buffer with Backing::sparse that have gone elsewhere.
#pragma once
#include "tensor/tensor.h"

namespace ingot {

/// Gives back the whole pages of a tensor's memory; what was there is undefined. Only for Backing::sparse.
void give_back_pages(const Tensor& values);
/// Asks for huge pages, of which none reaches beyond the tensor: for what is written whole, and given back whole.
void ask_huge_pages(const Tensor& values);

}  // namespace ingot
