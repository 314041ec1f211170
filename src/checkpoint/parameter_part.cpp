// See parameter_part.h.
#include "checkpoint/parameter_part.h"

#include <algorithm>

namespace ingot {
namespace {

constexpr std::string_view kOptimizerPrefix = "optimizer/";

/// Elements [begin, end) of a row-major tensor as contiguous boxes, whose extents before dimension
/// `first_dim` are 1.
std::vector<Region> range_boxes(const Shape& shape, int first_dim, int64_t begin, int64_t end) {
  const int rank = shape.rank();
  std::vector<int64_t> stride(static_cast<size_t>(rank) + 1, 1);
  for (int d = rank - 1; d >= 0; --d)
    stride[static_cast<size_t>(d)] = stride[static_cast<size_t>(d) + 1] * shape[d];
  std::vector<Region> boxes;
  for (int64_t at = begin; at < end;) {
    // stride[d + 1]: elements of one index of dimension d.
    int d = std::min(first_dim, std::max(rank - 1, 0));
    while (d < rank - 1 &&
           (at % stride[static_cast<size_t>(d) + 1] != 0 || at + stride[static_cast<size_t>(d) + 1] > end))
      ++d;
    Region box;
    int64_t count = 1;
    for (int k = 0; k < rank; ++k) {
      const int64_t unit = stride[static_cast<size_t>(k) + 1], index = at / unit % shape[k];
      int64_t extent = k < d ? 1 : shape[k];
      if (k == d) extent = std::min((end - at) / unit, shape[k] - index);
      box.offset.push_back(k <= d ? index : 0);
      box.shape.push_back(extent);
      count *= extent;
    }
    boxes.push_back(box);
    at += count;
  }
  return boxes;
}

/// The last dimension along which there are several pieces.
int last_divided_dim(const std::vector<ParameterPiece>& pieces) {
  int last = 0;
  for (const ParameterPiece& p : pieces)
    for (size_t d = 0; d < p.local_offset.size(); ++d)
      if (p.local_offset[d] != pieces[0].local_offset[d]) last = std::max(last, static_cast<int>(d));
  return last;
}

}  // namespace

std::vector<PartBox> boxes_of(const ParameterSpec& spec, const Placement& placement, int64_t begin,
                              int64_t end) {
  const Shape local = local_shape(spec, placement);
  INGOT_CHECK(0 <= begin && begin <= end && end <= local.numel(), "'{}': elements [{}, {}) of {}", spec.name,
              begin, end, local.numel());
  const std::vector<ParameterPiece> pieces = pieces_of(spec, placement);
  std::vector<PartBox> boxes;
  int64_t offset = 0;
  for (const Region& box : range_boxes(local, last_divided_dim(pieces), begin, end))
    for (const ParameterPiece& p : pieces) {
      Region in_local;
      for (size_t d = 0; d < p.extent.size(); ++d) {
        in_local.offset.push_back(p.local_offset[d]);
        in_local.shape.push_back(p.extent[d]);
      }
      const auto common = intersect(box, in_local);
      if (!common && local.rank() > 0) continue;
      Region global;
      for (int d = 0; d < local.rank(); ++d) {
        const auto k = static_cast<size_t>(d);
        global.offset.push_back(common->offset[d] + p.global_offset[k] - p.local_offset[k]);
        global.shape.push_back(common->shape[d]);
      }
      boxes.push_back({global, offset});
      offset += global.shape.numel();
    }
  INGOT_CHECK(offset == end - begin, "'{}': {} of {} elements belong to a piece", spec.name, offset,
              end - begin);
  return boxes;
}

namespace {

/// f(region, its first value) for the boxes of a part.
template <class F>
void each_box(const ParameterPart& part, F&& f) {
  const Tensor& t = part.values;
  for (const PartBox& b : boxes_of(part.spec, part.placement, part.begin, part.begin + t.numel()))
    f(b.region, static_cast<std::byte*>(t.data) + b.offset * size_of(t.dtype()));
}

}  // namespace

void add_part(std::vector<Piece>& pieces, const std::string& name, TensorKind kind,
              const ParameterPart& part) {
  each_box(part, [&](const Region& region, const std::byte* data) {
    pieces.push_back({name, kind, part.values.dtype(), part.spec.shape, region, data});
  });
}

void read_part(const CheckpointReader& reader, const std::string& name, const ParameterPart& part) {
  const ParameterSpec& spec = part.spec;
  const auto stored = reader.tensors().find(name);
  if (stored != reader.tensors().end() && !(stored->second.meta.shape == spec.shape))
    fail("'{}': '{}' has shape {}, expected {}", reader.path(), name, stored->second.meta.shape.str(),
         spec.shape.str());
  each_box(part, [&](const Region& region, std::byte* data) {
    reader.read(name, region, part.values.dtype(), data);
  });
}

std::string optimizer_state_name(const std::string& state) {
  return fmt::format("{}{}", kOptimizerPrefix, state);
}

std::optional<std::string_view> parameter_of_state(std::string_view name) {
  if (!name.starts_with(kOptimizerPrefix)) return std::nullopt;
  name.remove_prefix(kOptimizerPrefix.size());
  return name.substr(0, name.rfind('.'));
}

}  // namespace ingot
