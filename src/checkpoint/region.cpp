// See region.h.
#include "checkpoint/region.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "base/parallel.h"

namespace ingot {
namespace {

using Point = std::array<int64_t, Shape::kMaxRank>;

/// Adds `sign` times the signed corners of a box. The signed corners are the mixed derivative of the box's
/// indicator function, so two families of boxes cover every point equally often if and only if the sums of
/// their corners agree.
void add_corners(std::map<Point, int64_t>& corners, const Region& box, int64_t sign) {
  const int rank = box.shape.rank();
  for (unsigned mask = 0; mask < 1u << rank; ++mask) {
    Point p{};
    int64_t s = sign;
    for (int d = 0; d < rank; ++d) {
      const bool far = (mask >> d & 1u) != 0;
      p[static_cast<size_t>(d)] = box.offset[d] + (far ? box.shape[d] : 0);
      if (far) s = -s;
    }
    const auto it = corners.try_emplace(p, 0).first;
    if ((it->second += s) == 0) corners.erase(it);
  }
}

/// Rounds a double to bf16 once: the float in between is rounded to odd, so that no bit is lost to the second
/// rounding.
bf16 bf16_of(double x) {
  const auto f = static_cast<float>(x);
  if (static_cast<double>(f) == x || std::isnan(x)) return to_bf16(f);
  uint32_t bits = std::bit_cast<uint32_t>(f);
  if (std::abs(static_cast<double>(f)) > std::abs(x)) --bits;
  return to_bf16(std::bit_cast<float>(bits | 1u));
}

template <class Out, class In>
Out convert_one(In x) {
  if constexpr (std::is_same_v<Out, bf16>) {
    if constexpr (std::is_same_v<In, double>)
      return bf16_of(x);
    else
      return to_bf16(to_float(x));
  } else if constexpr (std::is_same_v<In, bf16>) {
    return static_cast<Out>(to_float(x));
  } else {
    return static_cast<Out>(x);
  }
}

template <class Out, class In>
void convert_loop(void* out, const std::byte* in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    In x;
    std::memcpy(&x, in + static_cast<size_t>(i) * sizeof(In), sizeof(In));
    static_cast<Out*>(out)[i] = convert_one<Out>(x);
  }
}

template <class Out>
void convert_to(void* out, const std::byte* in, DType in_type, int64_t n) {
  if (in_type == DType::f32) return convert_loop<Out, float>(out, in, n);
  if (in_type == DType::f64) return convert_loop<Out, double>(out, in, n);
  convert_loop<Out, bf16>(out, in, n);
}

/// The index of the first element of `part` in a buffer over `region`, and the strides of that buffer.
struct PartStrides {
  int64_t start = 0;
  std::array<int64_t, Shape::kMaxRank> stride{};
  PartStrides(const Region& region, const Region& part) {
    int64_t step = 1;
    for (int d = region.shape.rank() - 1; d >= 0; --d) {
      stride[static_cast<size_t>(d)] = step;
      start += (part.offset[d] - region.offset[d]) * step;
      step *= region.shape[d];
    }
  }
};

}  // namespace

Region Region::whole(const Shape& global) {
  Region region{.offset = {}, .shape = global};
  for (int d = 0; d < global.rank(); ++d) region.offset.push_back(0);
  return region;
}

std::string Region::str() const {
  std::string text;
  for (int d = 0; d < shape.rank(); ++d)
    text += fmt::format("{}{}:{}", d ? ", " : "", offset[d], offset[d] + shape[d]);
  return fmt::format("[{}]", text);
}

bool inside(const Region& region, const Shape& global) {
  if (region.shape.rank() != global.rank() || region.offset.rank() != global.rank()) return false;
  for (int d = 0; d < global.rank(); ++d)
    if (region.offset[d] > global[d] || region.shape[d] > global[d] - region.offset[d]) return false;
  return true;
}

std::optional<Region> intersect(const Region& a, const Region& b) {
  Region common;
  for (int d = 0; d < a.shape.rank(); ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d]);
    if (begin >= end) return std::nullopt;
    common.offset.push_back(begin);
    common.shape.push_back(end - begin);
  }
  return common;
}

std::optional<std::string> coverage_fault(const Shape& global, std::span<const Region> pieces) {
  std::map<Point, int64_t> corners;
  if (global.numel() > 0) add_corners(corners, Region::whole(global), -1);
  for (const Region& piece : pieces)
    if (piece.shape.numel() > 0) add_corners(corners, piece, 1);
  if (corners.empty()) return std::nullopt;
  // No corner is below the smallest one, so its sum is exactly how far the coverage of that element is off.
  const auto& [point, excess] = *corners.begin();
  std::string at;
  for (int d = 0; d < global.rank(); ++d)
    at += fmt::format("{}{}", d ? ", " : "", point[static_cast<size_t>(d)]);
  return excess < 0 ? fmt::format("no piece holds element [{}] (a hole)", at)
                    : fmt::format("{} pieces hold element [{}] (an overlap)", excess + 1, at);
}

bool convertible(DType from, DType to) {
  return from == to || (is_floating(from) && is_floating(to));
}

void convert_elements(void* out, DType out_type, const std::byte* in, DType in_type, int64_t n) {
  INGOT_CHECK(convertible(in_type, out_type), "{} to {}", name_of(in_type), name_of(out_type));
  parallel_for(n, int64_t{1} << 18, [&](int64_t begin, int64_t end) {
    void* to = static_cast<std::byte*>(out) + begin * size_of(out_type);
    const std::byte* from = in + begin * size_of(in_type);
    if (in_type == out_type)
      std::memcpy(to, from, static_cast<size_t>((end - begin) * size_of(in_type)));
    else if (out_type == DType::f32)
      convert_to<float>(to, from, in_type, end - begin);
    else if (out_type == DType::f64)
      convert_to<double>(to, from, in_type, end - begin);
    else
      convert_to<bf16>(to, from, in_type, end - begin);
  });
}

void copy_common(void* out, const Region& out_region, DType out_type, const std::byte* in,
                 const Region& in_region, DType in_type) {
  const std::optional<Region> common = intersect(out_region, in_region);
  if (!common) return;
  const PartStrides to(out_region, *common), from(in_region, *common);
  // Dimensions [outer, rank) are contiguous in both buffers, and copied at once.
  const int rank = common->shape.rank();
  int outer = rank;
  int64_t run = 1;
  while (outer > 0) {
    run *= common->shape[--outer];
    if (common->shape[outer] != out_region.shape[outer] || common->shape[outer] != in_region.shape[outer])
      break;
  }
  std::array<int64_t, Shape::kMaxRank> index{};
  int64_t o = to.start, i = from.start;
  for (;;) {
    convert_elements(static_cast<std::byte*>(out) + o * size_of(out_type), out_type,
                     in + i * size_of(in_type), in_type, run);
    int d = outer - 1;
    for (; d >= 0; --d) {
      const auto k = static_cast<size_t>(d);
      o += to.stride[k];
      i += from.stride[k];
      if (++index[k] < common->shape[d]) break;
      o -= to.stride[k] * common->shape[d];
      i -= from.stride[k] * common->shape[d];
      index[k] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace ingot
