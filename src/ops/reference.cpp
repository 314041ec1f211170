// See reference.h.
#include "ops/reference.h"

#include "device/gemm/packed_registry.h"

namespace ingot::reference {
namespace {

/// A matrix [E, N, K] (or [N, K]) that lies packed.
Array load_packed(const PackedWeights& w) {
  Array values(static_cast<size_t>(w.experts() * w.n() * w.k()));
  std::vector<float> column(static_cast<size_t>(w.k()));
  auto out = values.begin();
  for (int64_t e = 0; e < w.experts(); ++e)
    for (int64_t n = 0; n < w.n(); ++n) {
      w.column(e, n, column.data());
      out = std::copy(column.begin(), column.end(), out);
    }
  return values;
}

}  // namespace

Array load(const Tensor& t) {
  if (!t.defined()) return {};
  if (const PackedWeights* packed = packed_at(t.data)) return load_packed(*packed);
  const auto n = static_cast<size_t>(t.numel());
  Array values(n);
  switch (t.dtype()) {
    case DType::f64:
      for (size_t i = 0; i < n; ++i) values[i] = t.as<double>()[i];
      break;
    case DType::f32:
      for (size_t i = 0; i < n; ++i) values[i] = t.as<float>()[i];
      break;
    case DType::bf16:
      for (size_t i = 0; i < n; ++i) values[i] = to_float(t.as<bf16>()[i]);
      break;
    case DType::f32_as_bf16:
      for (size_t i = 0; i < n; ++i) values[i] = to_float(t.as<RoundedFloat>()[i]);
      break;
    default:
      INGOT_CHECK(false, "{} is not a floating type", name_of(t.dtype()));
  }
  return values;
}

std::vector<int32_t> load_ints(const Tensor& t) {
  if (!t.defined()) return {};
  return {t.as<int32_t>(), t.as<int32_t>() + t.numel()};
}

void store(const Tensor& t, const Array& values) {
  const auto n = static_cast<size_t>(t.numel());
  INGOT_CHECK(values.size() == n, "{} values for {}", values.size(), t.meta.str());
  switch (t.dtype()) {
    case DType::f64:
      for (size_t i = 0; i < n; ++i) t.as<double>()[i] = values[i];
      break;
    case DType::f32:
      for (size_t i = 0; i < n; ++i) t.as<float>()[i] = static_cast<float>(values[i]);
      break;
    case DType::bf16:
      for (size_t i = 0; i < n; ++i) t.as<bf16>()[i] = to_bf16(static_cast<float>(values[i]));
      break;
    default:
      INGOT_CHECK(false, "{} is not a floating type", name_of(t.dtype()));
  }
}

void store(const GradSlot& slot, const Array& values) {
  if (!slot.wanted()) return;
  if (!slot.accumulate) return store(slot.tensor, values);
  Array sum = load(slot.tensor);
  INGOT_CHECK(sum.size() == values.size(), "{} values for {}", values.size(), slot.tensor.meta.str());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  store(slot.tensor, sum);
}

}  // namespace ingot::reference
