// Router balancing without an auxiliary loss: per layer a bias per expert, added to the router's scores for
// the choice only, moved once per optimizer step by how many tokens each expert got.
//
//   adamw (ZAYA1):    g_i = n_i / sum(n) - 1/E;  the AdamW update without decay, rate lr, betas 0.9 and 0.999
//   sign (DeepSeek):  b_i <- b_i + rate * sign(mean(n) - n_i)
//
// Counts are of valid tokens over the whole step: all micro-batches, all ranks. Classes beyond the real
// experts (ZAYA1's skip class) are pinned: never moved, and left out of sums and targets. Biases and state
// are fp32. Powers of the betas are those of power.h, which devices have too. Call after the optimizer step,
// so all forward passes of a step share one bias. Sources: docs/optimizers.md.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nn/moe/config.h"
#include "optim/adamw.h"
#include "optim/kernels.h"
#include "optim/param.h"

namespace ingot {

struct BalanceConfig {
  BalanceRule rule = BalanceRule::adamw;  ///< not none
  double rate = 1e-3;
  AdamWConfig adamw{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
};

/// The bias of one layer: `classes` floats, of which the first `experts` are moved.
struct BalanceView {
  std::string name;
  int64_t experts = 0;
  int64_t classes = 0;
  float* bias = nullptr;
  bool frozen = false;  ///< keep the bias as it is (reinforcement learning)
};

class BalanceController {
 public:
  /// The biases must outlive the controller. Throws Error for a bad config. `device`: where the state may
  /// move.
  BalanceController(BalanceConfig config, std::vector<BalanceView> layers,
                    DeviceKind device = DeviceKind::cpu);

  /// Updates the bias of one layer; `counts` has one entry per class. Without tokens nothing changes.
  void step(size_t layer, std::span<const int64_t> counts);
  const std::vector<BalanceView>& layers() const { return layers_; }

  // The same in parts, for a device (optim/device_update.h).

  /// What an update of one layer writes.
  struct Place {
    float* bias = nullptr;
    float *exp_avg = nullptr, *exp_avg_sq = nullptr;  ///< [experts]; nullptr for `sign`, as is the next
    int64_t* step = nullptr;
  };
  /// Where that is with the state on the device, where it goes; `bias`: the address there.
  Place place_on_device(size_t layer, void* bias) const;
  /// The addresses are those of place_on_device() again, and the state is there.
  void move_state_to_device() const;
  /// A step of a layer that is not frozen, as the arguments of a kernel; `counts`: of its experts.
  BalanceArgs args_at(size_t layer, const Place& place, const double* counts) const;

  /// Visits what a checkpoint must hold besides the biases: name + ".exp_avg", ".exp_avg_sq" (f32) and
  /// ".step" (i64). Nothing for `sign`. Loading writes through the same tensors.
  void for_each_state(const std::function<void(const std::string& name, const Tensor& tensor)>& fn);

 private:
  Place place(size_t layer, void* state) const;

  BalanceConfig config_;
  std::vector<BalanceView> layers_;
  std::vector<int64_t> offsets_;
  Buffer state_;  ///< both moments of all layers, then the numbers of their steps; empty for `sign`
};

/// The share of each expert in the choices of a step; without any, `load` stays as it is.
void load_fractions(std::span<const int64_t> counts, float* load);

/// H(f) / ln(E) over the first `experts` counts: 1 when evenly loaded, 0 when one expert gets all (or E < 2,
/// or no tokens).
double normalized_load_entropy(std::span<const int64_t> counts, int64_t experts);

}  // namespace ingot
