// See stage_boundary.h.
#include "models/stage_boundary.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "base/config.h"

namespace ingot {
namespace {

constexpr int64_t kDryRunRows = 8;

/// A stream at a boundary of the dry run, and how many nodes the tape had there.
struct Mark {
  BoundaryPosition position;
  Stream stream;
  size_t nodes;
};

Value null_ids(Tape& tape) {
  return tape.leaf({nullptr, {kDryRunRows}, DType::i32, DeviceKind::null});
}

/// Runs the model part by part, heads included, and marks every boundary.
std::vector<Mark> run_parts(const Decoder& decoder, Context& c, int64_t depths) {
  const ModelConfig& m = decoder.config();
  std::vector<Mark> marks;
  Stream s = decoder.embed(c, null_ids(c.tape));
  const auto mark = [&](int64_t layer, int64_t modules) {
    marks.push_back({{layer, modules}, s, c.tape.nodes().size()});
  };
  std::vector<BalanceLosses> balance;
  mark(0, 0);
  for (int64_t layer = 0; layer < m.layers; ++layer) {
    decoder.blocks(c, s, layer, layer + 1, balance);
    mark(layer + 1, 0);
  }
  decoder.finish(c, s);
  for (int64_t module = 0, depth = 0; module < m.mtp.modules(); ++module) {
    for (const int64_t end = m.mtp.shared ? depths : std::min(module + 1, depths); depth < end; ++depth)
      decoder.predict_ahead(c, s, null_ids(c.tape), balance);
    mark(m.layers, module + 1);
  }
  for (const Value& hidden_TD : s.hidden_TD)
    decoder.head(c, {.mode = HeadMode::recompute}, hidden_TD, null_ids(c.tape));
  return marks;
}

}  // namespace

BoundaryPosition position_before(const StageParts& parts) {
  return {parts.first_layer, parts.first_module};
}

BoundaryPosition position_after(const StageParts& parts) {
  return {parts.first_layer + parts.layers, parts.first_module + parts.modules};
}

int64_t predicted_depths(const ModelConfig& config, const TapeOptions& tape) {
  return tape.record ? config.mtp.depths : 0;
}

StageBoundaries::StageBoundaries(const Decoder& decoder, const Precision& precision, int64_t depths) {
  const WeightSet weights(decoder.table(), {}, precision, Backing::nothing);
  BatchLayout rows;
  rows.spans.push_back({0, kDryRunRows});
  rows.count = kDryRunRows;
  CountingArena arena;
  Tape tape(arena, {.device = DeviceKind::null});
  Context c{tape, weights, &rows, null_ids(tape)};
  std::vector<Mark> marks = run_parts(decoder, c, depths);
  const std::vector<Node>& nodes = tape.nodes();
  std::set<int32_t> read;  // by the nodes after the boundary
  size_t first = nodes.size();
  for (auto mark = marks.rbegin(); mark != marks.rend(); ++mark) {
    for (; first > mark->nodes; --first)
      read.insert(nodes[first - 1].inputs.begin(), nodes[first - 1].inputs.end());
    StageBoundary& boundary = boundaries_[mark->position];
    size_t index = 0;
    mark->stream.visit([&](Value& v) {
      if (v.defined() && read.count(v.id()) > 0) {
        INGOT_CHECK(v.shape().rank() == 2 && v.dim(0) == kDryRunRows, "{}", v.meta().str());
        boundary.live_.push_back({index, v.dim(1), v.dtype()});
      }
      ++index;
      v = {};
    });
    mark->stream.ids_T = {};
    boundary.stream_ = mark->stream;
  }
}

std::vector<TensorMeta> StageBoundary::metas(int64_t rows) const {
  std::vector<TensorMeta> metas;
  for (const LiveValue& v : live_) metas.push_back({{rows, v.width}, v.dtype});
  return metas;
}

std::vector<Value> StageBoundary::live_values(const Stream& stream) const {
  std::vector<Value> all, live;
  stream.visit([&](const Value& v) { all.push_back(v); });
  INGOT_CHECK(stream.skips.size() == stream_.skips.size() &&
                  stream.hidden_TD.size() == stream_.hidden_TD.size() && stream.merge == stream_.merge,
              "a stream of another boundary");
  for (const LiveValue& v : live_) live.push_back(all[v.index]);
  return live;
}

Stream StageBoundary::resume(const std::vector<Value>& values, const Value& ids_T) const {
  INGOT_CHECK(values.size() == live_.size(), "{} values, {} are live", values.size(), live_.size());
  Stream s = stream_;
  s.ids_T = ids_T;
  size_t index = 0, next = 0;
  s.visit([&](Value& v) {
    if (next < live_.size() && live_[next].index == index++) v = values[next++];
  });
  return s;
}

struct Decoder::BoundaryCache {
  std::mutex mutex;
  std::map<std::tuple<DType, DType, int64_t>, std::unique_ptr<StageBoundaries>> by_pass;
};

const StageBoundaries& Decoder::boundaries(const Precision& precision, int64_t depths) const {
  const std::lock_guard lock(boundaries_->mutex);
  auto& found = boundaries_->by_pass[{precision.compute, precision.stream, depths}];
  if (!found) found = std::make_unique<StageBoundaries>(*this, precision, depths);
  return *found;
}

/// Decoders that are made one after the other share it where their models are equal, as those of ranks are.
std::shared_ptr<Decoder::BoundaryCache> Decoder::boundary_cache_of(const ModelConfig& config) {
  static std::mutex mutex;
  static std::string last_config;
  static std::shared_ptr<BoundaryCache> last;
  std::string text = print_config(config);
  const std::lock_guard lock(mutex);
  if (last == nullptr || text != last_config)
    last = std::make_shared<BoundaryCache>(), last_config = std::move(text);
  return last;
}

}  // namespace ingot
