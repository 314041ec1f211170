// See tensor.h.
#include "tensor/tensor.h"

#include <algorithm>

namespace ingot {

int64_t Shape::numel_of_many() const {
  const auto end = extent_.begin() + rank_;
  if (std::find(extent_.begin(), end, 0) != end) return 0;
  throw Error(fmt::format("a tensor of shape {} has more than {:g} elements", str(),
                          static_cast<double>(kMostElements)),
              "choose smaller sizes of the model, or fewer or shorter sequences in a forward pass");
}

std::string Shape::str() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string((*this)[i]);
  return text + "]";
}

std::string TensorMeta::str() const {
  return name_of(dtype) + shape.str() + (format == nullptr ? "" : std::string(" (") + format->name + ")");
}

Tensor Tensor::slice(int64_t begin, int64_t end) const {
  INGOT_CHECK(shape().rank() >= 1 && 0 <= begin && begin <= end && end <= dim(0) && packed() == nullptr,
              "[{}, {}) of {}", begin, end, meta.str());
  Shape part{end - begin};
  for (int i = 1; i < shape().rank(); ++i) part.push_back(dim(i));
  const int64_t row_bytes = dim(0) == 0 ? 0 : bytes() / dim(0);
  void* start = data == nullptr ? nullptr : static_cast<char*>(data) + begin * row_bytes;
  return Tensor(start, TensorMeta{part, dtype(), meta.format}, device);
}

}  // namespace ingot
