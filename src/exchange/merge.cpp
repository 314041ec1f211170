// See merge.h.
#include "exchange/merge.h"

#include "tensor/convert.h"

namespace ingot {
namespace {

std::vector<double> whole(const CheckpointReader& reader, const ParameterSpec& spec) {
  std::vector<double> values(static_cast<size_t>(spec.shape.numel()));
  reader.read(spec.name, Region::whole(spec.shape), DType::f64, values.data());
  return values;
}

}  // namespace

void merge_adapter(const CheckpointReader& reader, const ParameterTable& table, int index, int64_t first_row,
                   const Tensor& rows_RK) {
  const ParameterSpec& spec = table[index];
  const Adapter& adapter = spec.adapter;
  const std::vector<double> a = whole(reader, table[adapter.a]), b = whole(reader, table[adapter.b]);
  const auto rank = static_cast<size_t>(table[adapter.b].shape[1]),
             width = static_cast<size_t>(spec.shape[1]);
  std::vector<double> w(static_cast<size_t>(rows_RK.numel()));
  reader.read(spec.name, {{first_row, 0}, {rows_RK.dim(0), spec.shape[1]}}, DType::f64, w.data());
  size_t block = 0;
  int64_t block_end = adapter.blocks.front();
  for (int64_t i = 0; i < rows_RK.dim(0); ++i) {
    const int64_t row = first_row + i;
    while (row >= block_end) block_end += adapter.blocks[++block];
    for (size_t j = 0; j < rank; ++j) {
      const double factor = adapter.scale * b[static_cast<size_t>(row) * rank + j];
      for (size_t k = 0; k < width; ++k)
        w[static_cast<size_t>(i) * width + k] += factor * a[(block * rank + j) * width + k];
    }
  }
  store_rounded(rows_RK, w);
}

}  // namespace ingot
