// See muon.h.
#include "optim/muon.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <numeric>

#include "base/error.h"
#include "base/parallel.h"
#include "optim/kernels.h"
#include "optim/schedule.h"
#include "optim/work.h"

namespace ingot {

/// Scratch for one matrix in flight.
struct Muon::Slot {
  FloatBuffer input;            ///< this rank's slice of the matrix
  FloatBuffer whole, gathered;  ///< the matrix, where tensor ranks have slices of it
  NewtonSchulzScratch newton_schulz;
  std::vector<Pending> exchange;
  int64_t bytes() const {
    return (input.size() + whole.size() + gathered.size()) * static_cast<int64_t>(sizeof(float)) +
           newton_schulz.bytes();
  }
};

/// The step's momentum, what gradients are multiplied by, and how much of them the momentum takes.
struct Muon::Factors {
  double momentum, grad_scale, grad_weight;
};

/// As many slots as there were matrices in flight at once. Which slot a matrix gets does not matter: all of a
/// slot that is read was written for the same matrix.
class Muon::SlotPool {
 public:
  /// The smallest that has so many bytes, else the largest: small matrices leave large slots to large ones.
  std::unique_ptr<Slot> take(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Slot>();
    const auto worse = [bytes](const auto& a, const auto& b) {
      const int64_t x = a->bytes(), y = b->bytes();
      if ((x >= bytes) != (y >= bytes)) return x < bytes;
      return x >= bytes ? x > y : x < y;
    };
    const auto best = std::max_element(free_.begin(), free_.end(), worse);
    std::unique_ptr<Slot> slot = std::move(*best);
    free_.erase(best);
    return slot;
  }
  void put(std::unique_ptr<Slot> slot) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(slot));
  }
  int64_t bytes() const {
    return std::accumulate(free_.begin(), free_.end(), int64_t{0},
                           [](int64_t sum, const auto& slot) { return sum + slot->bytes(); });
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Slot>> free_;
};

/// One matrix to orthogonalise: rows [r, c] of tensor number `tensor`, contiguous from `offset`; of it this
/// rank moves the elements [begin, end).
struct Muon::Block {
  size_t tensor;
  int64_t offset;
  int64_t rows;
  int64_t cols;
  int64_t begin, end;
  double flops;
  int64_t count() const { return rows * cols; }
  bool whole() const { return end - begin == count(); }
  double update_sq = 0;  ///< result: sums over the block
  double weight_sq = 0;
};

/// Elements [begin, end) of a rank's tensor, orthogonalised as part of a matrix [rows, cols].
struct Muon::Band {
  int64_t begin, end, rows, cols;
};

namespace {

/// Blocks above this many elements always run alone, so that scratch does not multiply by the number of
/// threads.
constexpr int64_t kLargeBlock = int64_t{1} << 22;

float step_size_of(const MuonConfig& config, const MuonTensor& tensor, int64_t rows, int64_t cols) {
  return static_cast<float>(tensor.lr * muon_scale(config, rows, cols));
}

}  // namespace

void validate(const MuonConfig& c) {
  for (const double beta : {c.momentum, c.momentum_start, c.momentum_end})
    if (!(beta >= 0 && beta < 1)) fail("Muon has a momentum of {}, expected in [0, 1)", beta);
  if (c.momentum_warmup < 0) fail("Muon has momentum_warmup = {}, expected >= 0", c.momentum_warmup);
  if (c.momentum_cooldown < 0) fail("Muon has momentum_cooldown = {}, expected >= 0", c.momentum_cooldown);
  if (!(c.rms > 0)) fail("Muon has rms = {}, expected > 0", c.rms);
  if (!(c.lr_multiplier >= 0)) fail("Muon has lr_multiplier = {}, expected >= 0", c.lr_multiplier);
  validate(c.newton_schulz);
}

void require_fit(const MuonConfig& c, int64_t total_steps) {
  if (c.momentum_cooldown > 0 && c.momentum_warmup + c.momentum_cooldown > total_steps)
    fail("the momentum's warm-up and cool-down do not fit into the run: {} + {} > {} steps",
         c.momentum_warmup, c.momentum_cooldown, total_steps);
}

bool needs_momentum(const MuonConfig& c) {
  return c.momentum > 0 || (c.momentum_warmup > 0 && c.momentum_start > 0) ||
         (c.momentum_cooldown > 0 && c.momentum_end > 0);
}

double muon_momentum(const MuonConfig& c, int64_t total_steps, int64_t step) {
  const int64_t start = total_steps - c.momentum_cooldown;
  if (c.momentum_cooldown > 0 && step > start)
    return warmed_momentum(step - start, c.momentum, c.momentum_end, c.momentum_cooldown);
  return warmed_momentum(step, c.momentum_start, c.momentum, c.momentum_warmup);
}

double muon_scale(const MuonConfig& c, int64_t rows, int64_t cols) {
  const double r = static_cast<double>(rows), k = static_cast<double>(cols);
  switch (c.scale) {
    case MuonScale::match_rms:
      return c.rms * std::sqrt(std::max(r, k));
    case MuonScale::spectral:
      return std::sqrt(std::max(1.0, r / k));
    case MuonScale::none:
      return 1.0;
  }
  return 1.0;
}

Muon::Muon(MuonConfig config, int64_t total_steps)
    : config_(std::move(config)), total_steps_(total_steps), slots_(std::make_unique<SlotPool>()) {
  validate(config_);
  require_fit(config_, total_steps);
}
Muon::~Muon() = default;

int64_t Muon::scratch_bytes() const {
  return slots_->bytes();
}

std::vector<Muon::Block> Muon::blocks_of(std::span<const MuonTensor> tensors) {
  std::vector<Block> blocks;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const ParamView& p = *tensors[t].param;
    INGOT_CHECK(p.is_matrix(), "'{}' {} is not a matrix", p.name, p.shape.str());
    const int64_t cols = p.matrix_cols();
    const std::vector<int64_t> heights = p.row_splits.empty() ? std::vector{p.matrix_rows()} : p.row_splits;
    int64_t offset = 0;
    for (int64_t matrix = 0; matrix < p.matrices; ++matrix)
      for (const int64_t rows : heights) {
        const int64_t begin = std::max(offset, p.begin), end = std::min(offset + rows * cols, p.end());
        if (begin < end)
          blocks.push_back({t, offset, rows, cols, begin, end, newton_schulz_flops(rows, cols, 1)});
        offset += rows * cols;
      }
    INGOT_CHECK(offset == p.shape.numel(), "'{}' {}: blocks cover {} elements", p.name, p.shape.str(),
                offset);
  }
  return blocks;
}

/// Large: a block that would keep one thread busy when the others have finished; and slices, whose ranks
/// gather them in one order. Whole blocks that are neither go one per thread. No choice changes a bit of the
/// result.
std::vector<bool> Muon::uses_all_threads(std::span<const Block> blocks, std::span<const MuonTensor> tensors) {
  double total = 0;
  for (const Block& b : blocks) total += b.flops;
  std::vector<bool> all;
  for (const Block& b : blocks)
    all.push_back(b.count() > kLargeBlock || b.flops * 2 * num_threads() > total ||
                  tensors[b.tensor].param->sharding.group != nullptr);
  return all;
}

std::pair<int64_t, int64_t> Muon::whole_of(const ParamView& p, const Block& b) {
  const int64_t slices = p.sharding.group == nullptr ? 1 : p.sharding.group->size();
  return p.sharding.dim == 0 ? std::pair{slices * b.rows, b.cols} : std::pair{b.rows, slices * b.cols};
}

int64_t Muon::slot_bytes(const ParamView& p, const Block& b) {
  const int64_t slices = p.sharding.group == nullptr ? 1 : p.sharding.group->size();
  const auto [rows, cols] = whole_of(p, b);
  return b.count() * (slices > 1 ? 1 + 2 * slices : 1) * static_cast<int64_t>(sizeof(float)) +
         NewtonSchulzScratch::bytes_of(rows, cols);
}

int64_t Muon::planned_scratch_bytes(std::span<const MuonTensor> tensors) const {
  const std::vector<Block> blocks = blocks_of(tensors);
  const std::vector<bool> all_threads = uses_all_threads(blocks, tensors);
  int64_t shared = 0, largest = 0, pooled = 0, largest_pooled = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Block& b = blocks[i];
    const int64_t bytes = slot_bytes(*tensors[b.tensor].param, b);
    if (!b.whole()) {
      shared += bytes;
      continue;
    }
    largest = std::max(largest, bytes);
    if (!all_threads[i]) ++pooled, largest_pooled = std::max(largest_pooled, bytes);
  }
  // Parts of matrices have a slot each; beside them one, or one for each thread, is in use.
  return shared + largest +
         std::max<int64_t>(0, std::min<int64_t>(num_threads(), pooled) - 1) * largest_pooled;
}

double Muon::flops(const ParamView& p) const {
  const MuonTensor tensor{.param = &p};
  const NewtonSchulzConfig& c = config_.newton_schulz;
  const auto of = [&](int64_t rows, int64_t cols) {
    return newton_schulz_flops(rows, cols, c.steps, true, c.precision);
  };
  double flops = 0;
  for (const Block& b : blocks_of({&tensor, 1})) {
    const auto [rows, cols] = whole_of(p, b);
    if (p.sharding.blocks.empty()) flops += of(rows, cols);
    for (const int64_t height : p.sharding.blocks) flops += of(height, b.cols);
  }
  return flops;
}

/// Updates the momentum of this rank's part and writes N of it.
void Muon::form_input(const MuonTensor& tensor, const Block& block, Slot& slot,
                      const Factors& factors) const {
  const ParamView& p = *tensor.param;
  if (block.count() > slot.input.size()) slot.input = FloatBuffer(block.count());
  float* input = slot.input.data() + (block.begin - block.offset);
  const TensorChunks chunks = chunks_of({block.end - block.begin});
  parallel_for(chunks.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Chunk& c = chunks[i];
      const int64_t at = block.begin - p.begin + c.begin;
      INGOT_ISA_CALL(momentum_chunk)
      ({part_of(tensor.momentum, at), part_of(p.grad, at), input + c.begin, c.count,
        static_cast<float>(factors.grad_scale), static_cast<float>(factors.momentum),
        static_cast<float>(factors.grad_weight), config_.nesterov});
    }
  });
}

/// Sends this rank's part of N to the ranks that have others, and receives theirs.
void Muon::start_exchange(const ParamView& p, const Block& block, Slot& slot) {
  INGOT_CHECK(p.shards != nullptr, "'{}' is a part, and nobody has the rest", p.name);
  const std::vector<int64_t>& begins = p.shards->begins;
  Communicator& group = *p.shards->group;
  const auto part = [&](int64_t begin, int64_t end) {
    return Tensor::of(slot.input.data() + (begin - block.offset), {end - begin});
  };
  for (int r = 0; r < group.size(); ++r) {
    const int64_t begin = std::max(block.offset, begins[static_cast<size_t>(r)]);
    const int64_t end = std::min(block.offset + block.count(), begins[static_cast<size_t>(r) + 1]);
    if (r == group.rank() || begin >= end) continue;
    slot.exchange.push_back(group.send(part(block.begin, block.end), r));
    slot.exchange.push_back(group.recv(part(begin, end), r));
  }
}

namespace {

/// Copies between a matrix [rows, n * cols] and slice r of its n slices [rows, cols].
void copy_columns(float* slice, float* matrix, int64_t rows, int64_t cols, int64_t n, int64_t r,
                  bool to_matrix) {
  for (int64_t i = 0; i < rows; ++i) {
    float *a = slice + i * cols, *b = matrix + (i * n + r) * cols;
    to_matrix ? std::copy(a, a + cols, b) : std::copy(b, b + cols, a);
  }
}

}  // namespace

/// N of the whole matrix, orthogonalised; `input` then has this rank's slice of the result.
void Muon::orthogonalise(const ParamView& p, const Block& block, Slot& slot) const {
  for (Pending& message : slot.exchange) message.wait();
  slot.exchange.clear();
  if (p.sharding.group == nullptr)
    return newton_schulz(slot.input.data(), block.rows, block.cols, config_.newton_schulz,
                         slot.newton_schulz);
  const int64_t n = p.sharding.group->size(), count = block.count();
  for (FloatBuffer* buffer : {&slot.whole, &slot.gathered})
    if (n * count > buffer->size()) *buffer = FloatBuffer(n * count);
  const bool in_place = p.sharding.dim == 0 && p.sharding.blocks.empty();
  float *gathered = in_place ? slot.whole.data() : slot.gathered.data(), *whole = slot.whole.data();
  p.sharding.group->all_gather(Tensor::of(slot.input.data(), {count}), Tensor::of(gathered, {n * count}))
      .wait();
  if (!p.sharding.blocks.empty()) return orthogonalise_blocks(p, block, slot);
  const bool rows_cut = p.sharding.dim == 0;
  if (!rows_cut)
    for (int64_t r = 0; r < n; ++r)
      copy_columns(gathered + r * count, whole, block.rows, block.cols, n, r, true);
  newton_schulz(whole, rows_cut ? n * block.rows : block.rows, rows_cut ? block.cols : n * block.cols,
                config_.newton_schulz, slot.newton_schulz);
  const int64_t mine = p.sharding.group->rank();
  if (rows_cut)
    std::copy(whole + mine * count, whole + (mine + 1) * count, slot.input.data());
  else
    copy_columns(slot.input.data(), whole, block.rows, block.cols, n, mine, false);
}

/// The row blocks of a whole matrix whose gathered slices do not follow them.
void Muon::orthogonalise_blocks(const ParamView& p, const Block& block, Slot& slot) const {
  const float* from = slot.gathered.data();
  float* whole = slot.whole.data();
  for (const std::vector<RowRange>& slice : p.sharding.rows)
    for (const RowRange& rows : slice) {
      std::copy(from, from + rows.count * block.cols, whole + rows.begin * block.cols);
      from += rows.count * block.cols;
    }
  float* next = whole;
  for (const int64_t rows : p.sharding.blocks) {
    newton_schulz(next, rows, block.cols, config_.newton_schulz, slot.newton_schulz);
    next += rows * block.cols;
  }
  float* mine = slot.input.data();
  for (const RowRange& rows : p.sharding.rows[static_cast<size_t>(p.sharding.group->rank())])
    mine = std::copy(whole + rows.begin * block.cols, whole + (rows.begin + rows.count) * block.cols, mine);
}

std::vector<Muon::Band> Muon::bands_of(const ParamView& p, const Block& block) {
  if (p.sharding.blocks.empty()) {
    const auto [rows, cols] = whole_of(p, block);
    return {{block.begin, block.end, rows, cols}};
  }
  std::vector<Band> bands;
  int64_t local = block.offset;
  for (const RowRange& mine : p.sharding.rows[static_cast<size_t>(p.sharding.group->rank())]) {
    int64_t top = 0;  // of the block in the whole matrix
    for (const int64_t rows : p.sharding.blocks) {
      const int64_t common = std::min(mine.begin + mine.count, top + rows) - std::max(mine.begin, top);
      top += rows;
      if (common <= 0) continue;
      const int64_t begin = std::max(local, block.begin),
                    end = std::min(local + common * block.cols, block.end);
      if (begin < end) bands.push_back({begin, end, rows, block.cols});
      local += common * block.cols;
    }
  }
  return bands;
}

void Muon::apply(const MuonTensor& tensor, Block& block, const Slot& slot) const {
  for (const Band& band : bands_of(*tensor.param, block)) apply_band(tensor, band, block, slot);
}

void Muon::apply_band(const MuonTensor& tensor, const Band& band, Block& block, const Slot& slot) const {
  const ParamView& p = *tensor.param;
  const float* update = slot.input.data() + (band.begin - block.offset);
  const float step_size = step_size_of(config_, tensor, band.rows, band.cols);
  const TensorChunks chunks = chunks_of({band.end - band.begin});
  std::vector<UpdateSums> sums(chunks.list.size());
  parallel_for(chunks.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Chunk& c = chunks[i];
      const int64_t at = band.begin - p.begin + c.begin;
      sums[static_cast<size_t>(i)] = INGOT_ISA_CALL(apply_chunk)(
          {part_of(p.master, at), update + c.begin, ingot::at(p.compute, p.compute_dtype, at),
           p.compute_dtype == DType::bf16, c.count, decay_factor(tensor.lr, tensor.weight_decay), step_size});
    }
  });
  for (const UpdateSums& s : sums) {
    block.update_sq += static_cast<double>(s.update_sq);
    block.weight_sq += static_cast<double>(s.weight_sq);
  }
}

Muon::Factors Muon::factors_of(int64_t step, double grad_scale) const {
  const double momentum = momentum_at(step);
  return {momentum, grad_scale, config_.form == MomentumForm::lerp ? 1.0 - momentum : 1.0};
}

MuonUpdate Muon::update(std::span<const MuonTensor> tensors) const {
  MuonUpdate u{config_.nesterov,
               config_.form == MomentumForm::lerp,
               &config_.newton_schulz,
               {},
               std::vector<int64_t>(tensors.size() + 1),
               {},
               {}};
  const auto values = [](const StoredValues& v, int64_t first) {
    return v.data == nullptr ? nullptr : static_cast<float*>(v.data) + first;
  };
  for (const Block& b : blocks_of(tensors)) {
    const MuonTensor& t = tensors[b.tensor];
    const ParamView& p = *t.param;
    INGOT_CHECK(b.whole() && p.sharding.group == nullptr, "'{}' is in parts", p.name);
    u.matrices.push_back({b.rows, b.cols, values(p.master, b.offset), values(p.grad, b.offset),
                          values(t.momentum, b.offset), t.weight_decay, muon_scale(config_, b.rows, b.cols),
                          t.index});
    u.first[b.tensor + 1] = static_cast<int64_t>(u.matrices.size());
  }
  for (size_t t = 0; t < tensors.size(); ++t) {
    u.first[t + 1] = std::max(u.first[t + 1], u.first[t]);  // empty tensors have no matrix
    u.counts.push_back(tensors[t].param->numel());
    u.indices.push_back(tensors[t].index);
  }
  return u;
}

std::vector<UpdateStat> Muon::step(std::span<const MuonTensor> tensors, int64_t step, double grad_scale) {
  const Factors factors = factors_of(step, grad_scale);
  std::vector<Block> blocks = blocks_of(tensors);
  const std::vector<bool> all_threads = uses_all_threads(blocks, tensors);
  const auto finish = [&](Block& block, Slot& slot) {
    orthogonalise(*tensors[block.tensor].param, block, slot);
    apply(tensors[block.tensor], block, slot);
  };
  const auto run = [&](Block& block) {
    const MuonTensor& tensor = tensors[block.tensor];
    std::unique_ptr<Slot> slot = slots_->take(slot_bytes(*tensor.param, block));
    form_input(tensor, block, *slot, factors);
    finish(block, *slot);
    slots_->put(std::move(slot));
  };
  // Across shards: what other ranks need is sent first, and what they send is used last.
  std::vector<std::pair<Block*, std::unique_ptr<Slot>>> shared;
  for (Block& b : blocks) {
    if (b.whole()) continue;
    std::unique_ptr<Slot> slot = slots_->take(slot_bytes(*tensors[b.tensor].param, b));
    form_input(tensors[b.tensor], b, *slot, factors);
    start_exchange(*tensors[b.tensor].param, b, *slot);
    shared.emplace_back(&b, std::move(slot));
  }
  std::vector<Block*> pooled;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (!blocks[i].whole()) continue;
    if (all_threads[i])
      run(blocks[i]);
    else
      pooled.push_back(&blocks[i]);
  }
  // The costliest first.
  std::stable_sort(pooled.begin(), pooled.end(),
                   [](const Block* a, const Block* b) { return a->flops > b->flops; });
  parallel_in_order(static_cast<int64_t>(pooled.size()),
                    [&](int64_t i) { run(*pooled[static_cast<size_t>(i)]); });
  for (auto& [block, slot] : shared) finish(*block, *slot), slots_->put(std::move(slot));
  std::vector<UpdateStat> stats(tensors.size());
  for (const Block& b : blocks) {
    stats[b.tensor].update_rms += b.update_sq;
    stats[b.tensor].weight_rms += b.weight_sq;
  }
  for (size_t t = 0; t < tensors.size(); ++t) {
    const double n = static_cast<double>(std::max<int64_t>(tensors[t].param->numel(), 1));
    stats[t] = {std::sqrt(stats[t].update_rms / n), std::sqrt(stats[t].weight_rms / n)};
  }
  return stats;
}

}  // namespace ingot
