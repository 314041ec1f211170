// See convert.h.
#include "tensor/convert.h"

#include <algorithm>

#include "device/gemm/gemm.h"
#include "tensor/host_copy.h"

namespace ingot {
namespace {

template <class T>
std::vector<double> widened(const T* elements, int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  std::transform(elements, elements + count, values.begin(), [](T x) {
    if constexpr (std::is_same_v<T, double>)
      return x;
    else
      return static_cast<double>(to_float(x));
  });
  return values;
}

/// A packed matrix [E, N, K] (or [N, K]).
std::vector<double> unpacked(const PackedWeights& w) {
  std::vector<double> values(static_cast<size_t>(w.experts() * w.n() * w.k()));
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

std::vector<double> to_doubles(const Tensor& t) {
  if (t.data != nullptr && !t.on_host()) return to_doubles(HostCopy(t).tensor());
  if (!t.defined()) return {};
  if (t.packed() != nullptr) return unpacked(*t.packed());
  if (t.rounded()) return widened(static_cast<const RoundedFloat*>(t.data), t.numel());
  switch (t.dtype()) {
    case DType::f64:
      return widened(t.as<double>(), t.numel());
    case DType::f32:
      return widened(t.as<float>(), t.numel());
    case DType::bf16:
      return widened(t.as<bf16>(), t.numel());
    default:
      INGOT_CHECK(false, "{} is not a floating type", name_of(t.dtype()));
  }
  return {};
}

std::vector<int32_t> to_ints(const Tensor& t) {
  if (t.data != nullptr && !t.on_host()) return to_ints(HostCopy(t).tensor());
  if (!t.defined()) return {};
  return {t.as<int32_t>(), t.as<int32_t>() + t.numel()};
}

void store_rounded(const Tensor& t, const std::vector<double>& values) {
  INGOT_CHECK(static_cast<int64_t>(values.size()) == t.numel(), "{} values for {}", values.size(),
              t.meta.str());
  const auto store = [&](auto* out, auto rounded) {
    std::transform(values.begin(), values.end(), out, rounded);
  };
  switch (t.dtype()) {
    case DType::f64:
      return store(t.as<double>(), [](double x) { return x; });
    case DType::f32:
      return store(t.as<float>(), [](double x) { return static_cast<float>(x); });
    case DType::bf16:
      return store(t.as<bf16>(), [](double x) { return to_bf16(static_cast<float>(x)); });
    default:
      INGOT_CHECK(false, "{} is not a floating type", name_of(t.dtype()));
  }
}

}  // namespace ingot
