// Planning and threads of matrix products: see gemm.h for the contract, gemm_kernels.h for the words and the
// parts below.
//
// BLIS's outer loops, flattened: a product is cut into blocks (mc rows of A x a range of k) whose packed A
// fits a budget; blocks of all problems are gathered into phases; a phase runs its tasks (rows x columns of C
// for one block) in two parallel loops: those of the first micro-panel, which pack A while they multiply,
// then the others. A task packs its own panel of B, or the thread's task before has packed it, so B needs no
// barrier and stays in the level 2 cache. A grouped product is only more problems. A that is read in place is
// one block.
#include "device/gemm/gemm.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "base/round.h"
#include "base/work_ranges.h"
#include "device/gemm/gemm_kernels.h"
#include "device/gemm/gemm_plan.h"
#include "device/gemm/gemm_problem.h"
#include "device/gemm/matvec.h"
#include "device/gemm/product_choices.h"
#include "device/memory/scratch.h"

namespace ingot {
namespace {

/// Packed A of a phase: 8 MiB, a part of the level 3 cache.
constexpr int64_t kPackedWords = int64_t{2} << 20;
/// k-steps of a phase, where sums can wait in C.
constexpr int64_t kMaxPhaseSteps = 2048;
/// Where each k-step of A is a cache line of its own: half of the level 1 cache.
constexpr int64_t kMaxColumnKc = 512;
/// Fewer rows of packed A for each thread would not repay packing B again.
constexpr int64_t kMinOwnRows = 384;
/// From so many columns for each row on, threads share packed A, even across dies, and each reads part of B.
constexpr int64_t kSharedFrom = 16;

const void* at(const void* p, DType type, int64_t index) {
  return p == nullptr ? nullptr : static_cast<const char*>(p) + index * size_of(type);
}
void* at(void* p, DType type, int64_t index) {
  return static_cast<char*>(p) + index * size_of(type);
}

/// The packed panel of B that a thread has packed for a task to come.
struct NextPanelOfThread {
  uint64_t phase = 0;  ///< 0: none
  size_t task = 0;
  int buffer = 0;
};

/// Lines that a set of the level 1 cache holds; 0: not known.
int64_t level1_ways() {
#if defined(_SC_LEVEL1_DCACHE_ASSOC)
  static const auto ways = static_cast<int64_t>(::sysconf(_SC_LEVEL1_DCACHE_ASSOC));
  return ways;
#else
  return 0;
#endif
}

/// Kept per thread so that a call allocates nothing in steady state.
GemmPlan& plan_of_thread() {
  thread_local GemmPlan plan;
  plan.problems.clear();
  return plan;
}

int64_t steps_of(const GemmProblem& p) {
  return p.pairs ? ceil_div(p.depth, 2) : p.depth;
}

/// The kc of `steps` k-steps: about equal k-blocks of at most `most`.
int64_t kc_of(int64_t steps, int64_t most) {
  const int64_t blocks = std::max<int64_t>(1, ceil_div(steps, most));
  return std::max<int64_t>(16, round_up(ceil_div(steps, blocks), 16));
}

class Runner {
 public:
  explicit Runner(GemmPlan& plan, const ProductChoice& choice = {})
      : plan_(plan), choice_(choice), tile_(INGOT_ISA_CALL(gemm_tile_shape)()) {}

  void run() {
    plan_.blocks.clear();
    for (const GemmProblem& p : plan_.problems)
      if (p.m > 0 && p.n > 0) add(p);
    run_phase();
  }

 private:
  int64_t packed_words(int64_t rows, int64_t k0, int64_t k1) const {
    return round_up(round_up(rows, tile_.mr) * (k1 - k0), 16);
  }

  int64_t most_kc(int64_t rule) const { return std::min(choice_.kc.value_or(rule), tile_.max_kc); }

  void add(const GemmProblem& p) {
    const int64_t k = steps_of(p);
    if (in_place(p, tile_.mr, level1_ways(), choice_)) {
      const int64_t kc = kc_of(k, most_kc(p.a.k_contiguous() ? tile_.max_kc : kMaxColumnKc));
      plan_.blocks.push_back({&p, 0, p.m, 0, k, kc, GemmBlock::kInPlace});
      return;
    }
    // Sums cannot wait in C that is bf16, so then one phase has all of k.
    const int64_t phases = p.c.type == DType::f32 ? std::max<int64_t>(1, ceil_div(k, kMaxPhaseSteps)) : 1;
    const int64_t steps = std::max<int64_t>(16, round_up(ceil_div(k, phases), 16));
    const int64_t rows = rows_of_block(p, steps);
    for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += steps) {
      if (k0 > 0) run_phase();
      const int64_t k1 = std::min(k, k0 + steps), kc = kc_of(k1 - k0, most_kc(tile_.max_kc));
      for (int64_t row0 = 0; row0 < p.m; row0 += rows) {
        const int64_t count = std::min(rows, p.m - row0), words = packed_words(count, k0, k1);
        if (packed_ + words > kPackedWords) run_phase();
        plan_.blocks.push_back({&p, row0, count, k0, k1, kc, 0});
        packed_ += words;
      }
    }
  }

  /// mc: as many blocks as threads; or as few as the budget allows where the threads' own would be too small,
  /// or where each would read all of a large B.
  int64_t rows_of_block(const GemmProblem& p, int64_t steps) const {
    const int64_t threads =
        ceil_div(num_threads(), static_cast<int64_t>(plan_.problems.size()));  // for this problem
    const int64_t unit = threads * 2 * tile_.mr;
    const int64_t most = std::max<int64_t>(64, kPackedWords / steps / unit * unit);
    const int64_t one_each = round_up(ceil_div(p.m * threads, most), threads);
    const bool rule = p.m / one_each >= kMinOwnRows && p.n < kSharedFrom * p.m;
    const bool own = choice_.own_blocks.value_or(rule);
    return round_up(ceil_div(p.m, own ? one_each : ceil_div(p.m, most)), 2 * tile_.mr);
  }

  /// Runs the blocks gathered so far.
  void run_phase() {
    static std::atomic<uint64_t> phases{0};
    if (plan_.blocks.empty()) return;
    phase_ = ++phases;
    place_packed();
    work_ = 0;
    for (const GemmBlock& b : plan_.blocks) work_ += b.rows * b.problem->n * b.steps();
    plan_tasks(plan_, tile_, work_);
    a_ = static_cast<float*>(
        scratch(ScratchSlot::gemm_a, packed_ > 0 ? std::max(packed_, num_threads() * kPackedWords) * 4 : 64));
    multiply(0);
    multiply(1);
    plan_.blocks.clear();
    packed_ = 0;
  }

  /// Each thread's blocks are in a region of its own, so that packed A is written where the same thread has
  /// packed before, and the lines are in its caches: with two cores on two dies, tiles that pack ran at a
  /// fifth of their speed otherwise. A block beyond the budget is alone in its phase.
  void place_packed() {
    const int64_t threads = num_threads();
    int64_t before = 0, region = 0, offset = 0;
    for (GemmBlock& b : plan_.blocks) {
      if (b.a_offset == GemmBlock::kInPlace) continue;
      const int64_t words = packed_words(b.rows, b.k0, b.k1);
      const int64_t thread =
          packed_ > kPackedWords ? 0 : (2 * before + words) * threads / std::max<int64_t>(1, 2 * packed_);
      if (thread != region) region = thread, offset = 0;
      b.a_offset = region * kPackedWords + offset;
      before += words, offset += words;
    }
  }

  /// The tasks that pack A (part 0), or the others.
  void multiply(int part) {
    const int64_t threads = work_ < kInlineWork ? 1 : num_threads();
    const int64_t* ranges = plan_.ranges.data() + part * num_threads();
    if (ranges[0] == ranges[num_threads()]) return;
    plan_.queue.begin(0, threads);
    for (int64_t t = 0; t < threads; ++t)
      plan_.queue.set_range(t, ranges[t], threads == 1 ? ranges[num_threads()] : ranges[t + 1]);
    parallel_for(threads, 1, [&](int64_t thread, int64_t) {
      for (WorkRanges::Taken t = plan_.queue.take(thread); t.item != WorkRanges::kNone;
           t = plan_.queue.take(thread))
        run_task(static_cast<size_t>(t.item), static_cast<size_t>(t.next));
    });
  }

  /// `next`: the task that this thread will probably take after it; beyond the tasks: unknown.
  void run_task(size_t index, size_t next) const {
    const GemmTaskRange& r = plan_.tasks[index];
    const GemmBlock& b = *r.block;
    const GemmProblem& p = *b.problem;
    const int64_t row = b.row0 + r.row;
    GemmTask t{};
    t.a = p.a;
    t.a.base = t.a.at(row, 0);
    if (b.a_offset == GemmBlock::kInPlace)
      t.a_path = p.a.k_contiguous() ? APath::rows : APath::columns;
    else
      t.packed_a = {a_ + b.a_offset, round_up(b.rows, tile_.mr), r.row,
                    static_cast<int64_t>(index) < plan_.packing_tasks};
    t.b = p.b;
    t.b_packed = p.b_packed, t.pairs = p.pairs, t.lower_only = p.lower_only;
    t.depth = p.depth, t.k0 = b.k0, t.k1 = b.k1, t.kc = b.kc;
    t.row0 = row, t.rows = r.rows, t.col0 = r.col0, t.cols = r.cols;
    t.c = p.c;
    t.c.base = at(p.c.base, p.c.type, p.c.transposed ? row : row * p.c.stride);
    if (p.c.transposed) t.c.bias = at(p.c.bias, p.c.bias_type, row);
    t.from_c = p.accumulate || b.k0 > 0;
    t.last = b.k1 == steps_of(p);
    t.next = next_panel(next);
    thread_local NextPanelOfThread packed;
    const bool ready = packed.phase == phase_ && packed.task == index;
    if (!ready) packed.buffer = 0;
    t.buffers = buffers_of(t, packed.buffer, ready);
    const int buffer = INGOT_ISA_CALL(gemm_run_task)(t);
    packed = {buffer < 0 ? 0 : phase_, next, buffer == 1 ? 1 - packed.buffer : packed.buffer};
  }

  /// The calling thread's scratch for a task; its first packed panel of B is in the buffer of number `first`.
  GemmBuffers buffers_of(const GemmTask& t, int first, bool ready) const {
    const int64_t width = round_up(t.cols, tile_.nr);
    const int64_t panel =
        tile_.max_kc * kMaxMicroPanels * tile_.nr;  // the largest, so that the second never moves
    auto* panels = static_cast<float*>(scratch(ScratchSlot::gemm_b, 2 * panel * 4));
    GemmBuffers buffers{{panels + first * panel, panels + (1 - first) * panel}, ready, nullptr, nullptr};
    if (t.c.type == DType::bf16 && t.k1 - t.k0 > t.kc)
      buffers.c_sums =
          static_cast<float*>(scratch(ScratchSlot::gemm_c, round_up(t.rows, tile_.mr) * width * 4));
    if (t.c.transposed)
      buffers.c_rows = static_cast<float*>(scratch(ScratchSlot::gemm_c_rows, 2 * tile_.mr * width * 4));
    return buffers;
  }

  /// The first packed panel of B of a task.
  GemmNextPanel next_panel(size_t index) const {
    if (index >= plan_.tasks.size()) return {};
    const GemmTaskRange& r = plan_.tasks[index];
    const GemmBlock& b = *r.block;
    const GemmProblem& p = *b.problem;
    const int64_t elements = p.pairs ? 2 : 1, k = b.k0 * elements, kc = std::min(b.kc, b.k1 - b.k0);
    return {p.b.at(r.col0, k), kc, r.cols, k + kc * elements <= p.depth};
  }

  GemmPlan& plan_;
  const ProductChoice choice_;
  const GemmTileShape tile_;
  float* a_ = nullptr;
  int64_t packed_ = 0;  ///< words of packed A of the blocks gathered so far
  int64_t work_ = 0;
  uint64_t phase_ = 0;  ///< unique among all calls; never 0
};

/// As stored [rows, k], or [k, rows] where it is `k_major`.
GemmOperand operand(const void* base, DType type, bool k_major, int64_t ld) {
  return k_major ? GemmOperand{base, type, 1, ld} : GemmOperand{base, type, ld, 1};
}

/// What all problems of a call share; sizes and bases follow.
template <class Args>
GemmProblem common_of(const Args& args, bool a_transposed) {
  GemmProblem p;
  p.a = operand(nullptr, args.a_type, a_transposed, args.lda);
  p.b = operand(nullptr, args.packed ? args.packed->type() : args.b_type, !args.b_transposed, args.ldb);
  p.b.round = args.round_b && args.packed == nullptr;
  p.c = {nullptr, args.c_type, args.ldc, false, nullptr, args.bias_type};
  p.accumulate = args.accumulate;
  if (args.packed != nullptr) {
    p.b_packed = true;
    INGOT_CHECK(args.packed->k() == args.k && args.packed->n() == args.n, "packed {} x {}, expected {} x {}",
                args.packed->k(), args.packed->n(), args.k, args.n);
    INGOT_CHECK(args.packed->panel() == INGOT_ISA_CALL(gemm_tile_shape)().nr,
                "packed for another instruction set");
  }
  INGOT_CHECK(is_operand(p.a.type) && (is_operand(p.b.type) || p.b_packed) &&
                  (p.b.type == DType::f32 || !p.b.round) && is_operand(p.c.type) && is_operand(p.c.bias_type),
              "types {} {} {} {}", name_of(p.a.type), name_of(p.b.type), name_of(p.c.type),
              name_of(p.c.bias_type));
  p.pairs = p.a.is_bf16() && p.b.is_bf16();
  INGOT_CHECK(!args.accumulate || args.c_type == DType::f32, "accumulation needs an f32 result");
  return p;
}

GemmProblem problem(GemmProblem p, int64_t m, int64_t n, int64_t k, const void* a, const void* b, void* c,
                    const void* bias) {
  p.m = m, p.n = n, p.depth = k;
  p.a.base = a, p.b.base = b, p.c.base = c, p.c.bias = bias;
  return p;
}

/// Runs the plan's problems, of m x n x k on average, or their transposes.
void run_faster_form(GemmPlan& plan, int64_t m, int64_t n, int64_t k, const ProductChoice& choice = {}) {
  if (plan.problems.empty()) return;
  const int64_t mr = INGOT_ISA_CALL(gemm_tile_shape)().mr;
  if (is_by_transpose(plan.problems.front(), m, n, k, mr, choice))
    for (GemmProblem& p : plan.problems) transpose(p);
  Runner(plan, choice).run();
}

void check_offsets(const GroupedGemmArgs& args) {
  INGOT_CHECK(args.experts >= 0 && args.n >= 0 && args.k >= 0, "experts {} n {} k {}", args.experts, args.n,
              args.k);
  for (int64_t e = 0; e < args.experts; ++e)
    INGOT_CHECK(args.offsets[e] >= 0 && args.offsets[e] <= args.offsets[e + 1], "expert {}: rows {} .. {}", e,
                args.offsets[e], args.offsets[e + 1]);
}

int64_t average_rows(const GroupedGemmArgs& args) {
  return args.experts == 0 ? 0 : (args.offsets[args.experts] - args.offsets[0]) / args.experts;
}

}  // namespace

void gemm(const GemmArgs& args) {
  INGOT_CHECK(args.m >= 0 && args.n >= 0 && args.k >= 0, "m {} n {} k {}", args.m, args.n, args.k);
  const GemmProblem common = common_of(args, args.a_transposed);
  if (gemm_few_rows(args)) return;
  GemmPlan& plan = plan_of_thread();
  plan.problems.push_back(problem(common, args.m, args.n, args.k, args.a,
                                  args.packed ? args.packed->data() : args.b, args.c, args.bias));
  run_faster_form(plan, args.m, args.n, args.k, installed_choice(args));
}

void gemm_grouped(const GroupedGemmArgs& args) {
  check_offsets(args);
  const GemmProblem common = common_of(args, false);
  INGOT_CHECK(args.packed == nullptr || args.packed->experts() == args.experts,
              "packed {} experts, expected {}", args.packed ? args.packed->experts() : 0, args.experts);
  if (gemm_few_rows(args)) return;
  GemmPlan& plan = plan_of_thread();
  const void* b = args.packed ? args.packed->data() : args.b;
  const int64_t b_stride = args.packed ? args.packed->stride() : args.b_stride;
  for (int64_t e = 0; e < args.experts; ++e) {
    const int64_t row = args.offsets[e];
    plan.problems.push_back(
        problem(common, args.offsets[e + 1] - row, args.n, args.k, at(args.a, args.a_type, row * args.lda),
                at(b, common.b.type, e * b_stride), at(args.c, args.c_type, row * args.ldc),
                at(args.bias, args.bias_type, e * args.n)));
  }
  run_faster_form(plan, average_rows(args), args.n, args.k);
}

void gemm_grouped_weight(const GroupedGemmArgs& args) {
  check_offsets(args);
  INGOT_CHECK(args.packed == nullptr && args.bias == nullptr && !args.b_transposed);
  const GemmProblem common = common_of(args, true);
  GemmPlan& plan = plan_of_thread();
  for (int64_t e = 0; e < args.experts; ++e) {
    const int64_t row = args.offsets[e];
    plan.problems.push_back(problem(
        common, args.n, args.k, args.offsets[e + 1] - row, at(args.a, args.a_type, row * args.lda),
        at(args.b, args.b_type, row * args.ldb), at(args.c, args.c_type, e * args.c_stride), nullptr));
  }
  run_faster_form(plan, args.n, args.k, average_rows(args));
}

void gemm_symmetric(const GemmArgs& args) {
  INGOT_CHECK(args.packed == nullptr && args.bias == nullptr && !args.accumulate &&
              args.c_type == DType::f32);
  INGOT_CHECK(args.m >= 0 && args.k >= 0 && (args.n == 0 || args.n == args.m), "m {} n {} k {}", args.m,
              args.n, args.k);
  GemmProblem common = common_of(args, args.a_transposed);
  if (args.b == nullptr) {
    common.b = common.a;
    common.pairs = args.a_type == DType::bf16;
  }
  common.lower_only = true;
  GemmPlan& plan = plan_of_thread();
  plan.problems.push_back(
      problem(common, args.m, args.m, args.k, args.a, args.b != nullptr ? args.b : args.a, args.c, nullptr));
  Runner(plan).run();
  const int64_t bands = ceil_div(args.m, kMirrorRows);
  parallel_in_order(bands, [&](int64_t band) {
    const int64_t row = (bands - 1 - band) * kMirrorRows;  // the longest first
    INGOT_ISA_CALL(gemm_mirror)
    (static_cast<float*>(args.c), args.m, args.ldc, row, std::min(kMirrorRows, args.m - row));
  });
}

}  // namespace ingot
