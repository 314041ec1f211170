// See decoder.h: what is alive at a cut, and a stream made of it again.
#include <algorithm>

#include "models/decoder.h"

namespace ingot {
namespace {

/// Which values of a stream the parts behind a cut read.
struct Alive {
  bool x = true, pending = false, router_state = false, origin = false;
  int64_t skips = 0, hidden = 0;
};

Alive alive_at(const ModelConfig& m, const Cut& cut) {
  Alive a;
  if (cut.modules > 0) {
    const int64_t done = std::min(m.mtp.shared ? m.mtp.depths : cut.modules, cut.depths);
    a.x = done < cut.depths;
    a.hidden = 1 + done;
    return a;
  }
  const int64_t layer = cut.layer, half = m.layers / 2;
  const bool settled = m.unet_skips && layer - 1 < half;  // the block before left a skip
  a.pending = layer > 0 ? !settled : m.position == PositionKind::learned && !m.embedding_norm && !m.input_mix;
  const bool state = m.moe.experts > 0 && m.moe.router == RouterKind::zaya;
  a.router_state = state && layer > 0 && layer < m.layers && m.is_moe(layer - 1);
  a.origin = m.input_mix && layer < m.layers;
  if (m.unet_skips) a.skips = std::min(layer, m.layers - layer);
  return a;
}

}  // namespace

std::vector<TensorMeta> Decoder::border(const Precision& precision, const Cut& cut, int64_t rows) const {
  const Alive a = alive_at(config_, cut);
  const TensorMeta stream{{rows, config_.width}, precision.stream}, output{stream.shape, precision.compute};
  std::vector<TensorMeta> metas;
  if (a.x) metas.push_back(stream);
  if (a.pending) metas.push_back(cut.layer > 0 ? output : stream);
  if (a.router_state) metas.push_back({{rows, config_.moe.router_width}, precision.stream});
  if (a.origin) metas.push_back(stream);
  metas.insert(metas.end(), static_cast<size_t>(a.skips), stream);
  metas.insert(metas.end(), static_cast<size_t>(a.hidden), output);
  return metas;
}

std::vector<Value> Decoder::alive(const Stream& s, const Cut& cut) const {
  const Alive a = alive_at(config_, cut);
  INGOT_CHECK(a.pending == s.pending_TD.defined() && a.skips == static_cast<int64_t>(s.skips.size()) &&
                  a.hidden == static_cast<int64_t>(s.hidden_TD.size()),
              "behind {} layers and {} modules", cut.layer, cut.modules);
  std::vector<Value> values;
  if (a.x) values.push_back(s.x_TD);
  if (a.pending) values.push_back(s.pending_TD);
  if (a.router_state) values.push_back(s.router_state_TR);
  if (a.origin) values.push_back(s.origin_TD);
  values.insert(values.end(), s.skips.begin(), s.skips.end());
  values.insert(values.end(), s.hidden_TD.begin(), s.hidden_TD.end());
  return values;
}

Stream Decoder::resume(const std::vector<Value>& values, const Cut& cut, const Value& ids_T) const {
  const Alive a = alive_at(config_, cut);
  size_t next = 0;
  Stream s;
  if (a.x) s.x_TD = values.at(next++);
  if (a.pending) s.pending_TD = values.at(next++);
  if (a.router_state) s.router_state_TR = values.at(next++);
  if (a.origin) s.origin_TD = values.at(next++);
  for (int64_t i = 0; i < a.skips; ++i) s.skips.push_back(values.at(next++));
  for (int64_t i = 0; i < a.hidden; ++i) s.hidden_TD.push_back(values.at(next++));
  if (config_.value_embeddings > 0) s.ids_T = ids_T;
  const bool scaled = config_.residual == ResidualKind::scaled;
  if (cut.layer == 0) {
    if (scaled && !config_.embedding_norm) s.merge_params = input_scale_;
    s.merge = a.pending                           ? MergeKind::add
              : scaled && !config_.embedding_norm ? MergeKind::affine
                                                  : MergeKind::none;
  } else if (a.pending) {
    s.merge = scaled ? MergeKind::scaled : MergeKind::add;
    s.merge_params = blocks_[static_cast<size_t>(cut.layer - 1)].mlp_merge;
  }
  return s;
}

}  // namespace ingot
