// capacity in plain loops; see capacity.h.
#include "ops/reference.h"

#include <cmath>

#include "ops/capacity/capacity.h"

namespace ingot {
namespace {

using namespace reference;

/// Slot a comes before slot b in the same expert's order of preference.
bool before(const Array& probs, size_t a, size_t b, DropRule drop) {
  if (drop == DropRule::position) return a < b;
  if (std::isnan(probs[a]) || std::isnan(probs[b]))
    return std::isnan(probs[a]) == std::isnan(probs[b]) ? a < b : std::isnan(probs[b]);
  return probs[a] > probs[b] || (probs[a] == probs[b] && a < b);
}

void forward(const OpCall& call) {
  const auto& a = call.attr<CapacityAttr>();
  Array probs = load(call.in[0]);
  const Array given = probs;
  auto ids = load_ints(call.in[1]);
  const auto chosen = ids;
  const auto limit =
      static_cast<size_t>(expert_capacity(call.in[1].dim(0), call.in[1].dim(1), a.experts, a.factor));
  double dropped = 0;
  for (size_t s = 0; s < ids.size(); ++s) {
    size_t better = 0;
    for (size_t o = 0; o < ids.size(); ++o) better += chosen[o] == chosen[s] && before(given, o, s, a.drop);
    if (chosen[s] >= 0 && better < limit) continue;
    dropped += chosen[s] >= 0;
    probs[s] = 0;
    ids[s] = -1;
  }
  store(call.out[0], probs);
  std::copy(ids.begin(), ids.end(), call.out[1].as<int32_t>());
  store(call.out[2], {dropped});
}

void backward_input(const OpCall& call) {
  Array d_probs = load(call.d_out[0]);
  const auto ids = load_ints(call.out[1]);
  d_probs.resize(ids.size());
  for (size_t s = 0; s < ids.size(); ++s)
    if (ids[s] < 0) d_probs[s] = 0;
  store(call.d_in[0], d_probs);
}

}  // namespace

Kernel capacity_reference() {
  return {"reference", accept, forward, backward_input, nullptr};
}

}  // namespace ingot
