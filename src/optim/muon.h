// Muon: momentum, orthogonalised by Newton-Schulz, as the update of every matrix.
//
//   g = grad_scale * grad
//   sum form:  M <- beta M + g,               N = nesterov ? g + beta M : M
//   lerp form: M <- beta M + (1 - beta) g,    N = nesterov ? (1 - beta) g + beta M : M
//   O = newton_schulz(N)           per matrix of a stack and per row block of a packed matrix
//   W <- (1 - lr wd) W - lr s O    s by MuonScale, with [r, c] the shape of the block
//
// beta == 0 needs no momentum buffer (ZAYA1's reinforcement learning). Small matrices run one per thread,
// large ones use all threads inside the products; the bits are the same. Not thread-safe. Sources:
// docs/optimizers.md.
//
// Ranks that shard a tensor exchange N only of the matrices that lie in several shards, and only with each
// other. Each of them orthogonalises the whole matrix and applies its part ([ZAYA1-AMD], algorithm 1): no
// buffer for a whole model is needed, and the bits are those of one rank. Ranks of a tensor group gather N of
// every matrix that they hold in slices; where slices do not follow its row blocks, of all row blocks at
// once. All ranks call step() together.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/enum.h"
#include "base/range.h"
#include "optim/newton_schulz.h"
#include "optim/param.h"

namespace ingot {

/// match_rms: rms * sqrt(max(r, c)), which gives every shape an update RMS of about `rms`, like AdamW's
/// (Moonlight, ZAYA1). spectral: sqrt(max(1, r / c)) (Keller Jordan). none: 1.
enum class MuonScale { match_rms, spectral, none };
constexpr auto enum_names(MuonScale) {
  return names_in_order<MuonScale>("match_rms", "spectral", "none");
}
enum class MomentumForm { sum, lerp };
constexpr auto enum_names(MomentumForm) {
  return names_in_order<MomentumForm>("sum", "lerp");
}

struct MuonConfig {
  double momentum = 0.95;
  double momentum_start = 0.85;   ///< used only while warming up
  int64_t momentum_warmup = 0;    ///< steps; 300 in modded-nanogpt; 0: constant
  double momentum_end = 0.85;     ///< used only while cooling down
  int64_t momentum_cooldown = 0;  ///< steps; 50 in modded-nanogpt's later records; 0: none
  bool nesterov = true;
  MomentumForm form = MomentumForm::sum;
  MuonScale scale = MuonScale::match_rms;
  double rms = 0.2;            ///< of match_rms
  double lr_multiplier = 1.0;  ///< 1: one rate for Muon and AdamW, as RMS matching allows
  NewtonSchulzConfig newton_schulz;
  template <class Visitor>
  void visit(Visitor& v) {
    v("momentum", momentum, "momentum; 0: none", below_one());
    v("momentum_start", momentum_start, "momentum at the first step, while warming up", below_one());
    v("momentum_warmup", momentum_warmup, "steps of the momentum's warm-up; 0: none", up_to(bounds::kSteps));
    v("momentum_end", momentum_end, "momentum after the last step, while cooling down", below_one());
    v("momentum_cooldown", momentum_cooldown,
      "last steps of the run, in which the momentum cools down; 0: none", up_to(bounds::kSteps));
    v("nesterov", nesterov, "Nesterov form");
    v("form", form, "sum or lerp");
    v("scale", scale, "match_rms (0.2 sqrt(max(r, c))), spectral or none");
    v("precision", newton_schulz.precision,
      "operands of Newton-Schulz' products: f32, or bf16 with fp32 sums (half the time)");
    v("lr_multiplier", lr_multiplier, "factor on the learning rate of Muon's matrices", up_to(1e6));
  }
};

/// One parameter of a Muon step; is_matrix() must hold.
struct MuonTensor {
  const ParamView* param;
  StoredValues momentum;  ///< absent only where the momentum is 0
  double lr;
  double weight_decay;
  int64_t index = 0;  ///< of the parameter in its optimizer
};

/// A step as kernels of a device take it (update_kernels.h): f32, every matrix whole. Rates are those of the
/// step, by `index`; its numbers are the momentum.
struct MuonUpdate {
  struct Matrix {
    int64_t rows, cols;
    float* weights;
    const float* grad;
    float* momentum;  ///< nullptr: none
    double weight_decay, scale;
    int64_t index;
  };
  bool nesterov, lerp;
  const NewtonSchulzConfig* newton_schulz;
  std::vector<Matrix> matrices;
  std::vector<int64_t> first;   ///< tensor t has the matrices first[t] .. first[t + 1]
  std::vector<int64_t> counts;  ///< elements of each tensor
  std::vector<int64_t> indices;
};

/// Throws Error for a momentum outside [0, 1), negative steps or factors, or a bad Newton-Schulz config.
void validate(const MuonConfig& config);
/// Throws Error where warm-up and cool-down of the momentum do not fit into a run of `total_steps`.
void require_fit(const MuonConfig& config, int64_t total_steps);

/// The momentum of update `step` (from 0): linear from momentum_start, constant, linear to momentum_end,
/// which would be reached at total_steps.
double muon_momentum(const MuonConfig& config, int64_t total_steps, int64_t step);

/// True if some step has a momentum other than 0, so a buffer is needed.
bool needs_momentum(const MuonConfig& config);

/// The factor on O for a block of shape [r, c].
double muon_scale(const MuonConfig& config, int64_t rows, int64_t cols);

/// Muon's updates, with scratch memory that is reused from step to step.
class Muon {
 public:
  /// `total_steps` of the run: where the momentum's cool-down ends.
  explicit Muon(MuonConfig config, int64_t total_steps = 0);
  ~Muon();

  /// Update number `step` (from 0, for the momentum) of all tensors. Returns one UpdateStat per tensor.
  std::vector<UpdateStat> step(std::span<const MuonTensor> tensors, int64_t step, double grad_scale);
  /// What all steps of these tensors are, for kernels.
  MuonUpdate update(std::span<const MuonTensor> tensors) const;
  /// The momentum of a step.
  double momentum_at(int64_t step) const { return muon_momentum(config_, total_steps_, step); }
  const MuonConfig& config() const { return config_; }
  /// Bytes of scratch held now.
  int64_t scratch_bytes() const;
  /// What steps of these tensors make it at most, with the present number of threads; of matrices that follow
  /// each other in the same memory the largest counts (of very different shapes they take a little more).
  int64_t planned_scratch_bytes(std::span<const MuonTensor> tensors) const;
  /// Of the products of a step. Each rank that has a slice or a part of a matrix orthogonalises the whole.
  double flops(const ParamView& param) const;

 private:
  struct Slot;
  class SlotPool;
  struct Block;
  struct Band;
  struct Factors;
  Factors factors_of(int64_t step, double grad_scale) const;
  /// The matrix [rows, cols] of which a rank has a block.
  static std::pair<int64_t, int64_t> whole_of(const ParamView& param, const Block& block);
  /// What a slot takes for a block of a tensor.
  static int64_t slot_bytes(const ParamView& param, const Block& block);
  static std::vector<Block> blocks_of(std::span<const MuonTensor> tensors);
  static std::vector<bool> uses_all_threads(std::span<const Block> blocks,
                                            std::span<const MuonTensor> tensors);
  void form_input(const MuonTensor& tensor, const Block& block, Slot& slot, const Factors& factors) const;
  static std::vector<Band> bands_of(const ParamView& param, const Block& block);
  static void start_exchange(const ParamView& param, const Block& block, Slot& slot);
  void orthogonalise(const ParamView& param, const Block& block, Slot& slot) const;
  void orthogonalise_blocks(const ParamView& param, const Block& block, Slot& slot) const;
  void apply(const MuonTensor& tensor, Block& block, const Slot& slot) const;
  void apply_band(const MuonTensor& tensor, const Band& band, Block& block, const Slot& slot) const;

  MuonConfig config_;
  int64_t total_steps_;
  std::unique_ptr<SlotPool> slots_;
};

}  // namespace ingot
