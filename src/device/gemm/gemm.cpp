// Planning of matrix products: see gemm.h for the contract, gemm_kernels.h for the inner parts.
//
// A product is cut into blocks (rows x a range of k) whose packed A fits a budget, blocks are gathered into
// rounds, and a round runs as two parallel loops over pieces (some rows and columns of one block): those of the
// first columns, which pack A while they multiply, then the others. A piece has its own strip of B, packed at its
// beginning or by the thread's piece before while that multiplied, so B needs no barrier and stays in the level 2
// cache; a grouped product is only more problems. So hardly a pass over memory computes nothing. A that can be read
// where it lies is not packed, and a problem is one block.
#include "device/gemm/gemm.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "base/piece_shares.h"
#include "device/gemm/gemm_form.h"
#include "device/gemm/gemm_kernels.h"
#include "device/gemm/matvec.h"
#include "device/memory/scratch.h"

namespace ingot {
namespace {

constexpr int64_t kPackedFloats = int64_t{2}
                                  << 20;  // packed A per round: 8 MiB, a share of the level 3 cache
constexpr int64_t kMaxChunk = 2048;       // steps of k per round where chains can wait in C
constexpr int64_t kMaxBlock = 1024;       // steps per pass over the register tiles
constexpr int64_t kMaxColumnBlock =
    512;  // where each step of A is a line of its own: half of the level 1 cache
constexpr int64_t kMaxPieceRows = 1024;
constexpr int64_t kMinPieceRows = 128;  // fewer rows would not repay packing B again
constexpr int64_t kMinOwnRows = 384;    // fewer rows of packed A for a thread would not either
constexpr int64_t kSharedFrom =
    16;  // columns for each row, from which threads share packed A, even across dies, and each reads a part of B
constexpr int64_t kTailParts = 4;
constexpr int64_t kMaxTailSteps = 4096;   // of k, so that a part's B is still in a cache
constexpr int64_t kInlineWork = 1 << 16;  // multiply-adds below which threads do not pay

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
int64_t round_up(int64_t a, int64_t b) {
  return ceil_div(a, b) * b;
}
const void* at(const void* p, DType type, int64_t index) {
  return p == nullptr ? nullptr : static_cast<const char*>(p) + index * size_of(type);
}
void* at(void* p, DType type, int64_t index) {
  return static_cast<char*>(p) + index * size_of(type);
}

struct Block {
  const GemmProblem* problem;
  int64_t row0, rows, k0, k1, kc;  ///< k in steps
  int64_t a_offset;                ///< words into the packed buffer; or kInPlace
};
constexpr int64_t kInPlace = -1;

struct PieceUnit {
  const Block* block;
  int64_t col0, cols, row, rows;
};

struct Plan {
  std::vector<GemmProblem> problems;
  std::vector<Block> blocks;
  std::vector<PieceUnit> pieces;
  int64_t leading = 0;  ///< the first of them pack A
  std::vector<int64_t>
      runs;  ///< where each thread's run begins among those, then among the others; and the end
  std::vector<PieceUnit> planned;  ///< before they are dealt
  PieceShares shares;
};

/// A thread's strip of B that it has packed for a piece to come.
struct StripAhead {
  uint64_t round = 0;  ///< 0: none
  size_t piece = 0;
  int place = 0;
};

/// Kept per thread so that a call allocates nothing in steady state.
Plan& plan_of_thread() {
  thread_local Plan plan;
  plan.problems.clear();
  return plan;
}

class Runner {
 public:
  Runner(const GemmLayout& layout, Plan& plan)
      : layout_(layout), plan_(plan), tile_(INGOT_ISA_CALL(gemm_tile)()) {}

  void run() {
    plan_.blocks.clear();
    for (const GemmProblem& p : plan_.problems)
      if (p.m > 0 && p.n > 0) add(p);
    flush();
  }

 private:
  int64_t steps_of(const GemmProblem& p) const { return layout_.pairs ? ceil_div(p.depth, 2) : p.depth; }

  /// Pairs need whole words.
  bool in_place(const GemmProblem& p) const {
    if (p.depth == 0) return false;
    if (layout_.a_transposed) return reads_columns(layout_, p.n);
    return layout_.pairs ? p.depth % 2 == 0 && layout_.lda % 2 == 0 : layout_.a_type == DType::f32;
  }

  int64_t packed_floats(int64_t rows, int64_t k0, int64_t k1) const {
    return round_up(round_up(rows, tile_.rows) * (k1 - k0), 16);
  }

  void add(const GemmProblem& p) {
    // bf16 results cannot park a chain in C, so their k is never cut into rounds.
    const int64_t k = steps_of(p);
    if (in_place(p)) {
      const int64_t most = layout_.a_transposed ? kMaxColumnBlock : kMaxBlock;
      const int64_t kc = round_up(ceil_div(k, std::max<int64_t>(1, ceil_div(k, most))), 16);
      plan_.blocks.push_back({&p, 0, p.m, 0, k, std::max<int64_t>(kc, 16), kInPlace});
      return;
    }
    const int64_t chunks = layout_.c_type == DType::f32 ? std::max<int64_t>(1, ceil_div(k, kMaxChunk)) : 1;
    const int64_t chunk = std::max<int64_t>(16, round_up(ceil_div(k, chunks), 16));
    // As many blocks as threads, or as few as the budget allows where theirs would be too small, or where each would read all of a large B.
    const int64_t threads =
        ceil_div(num_threads(), static_cast<int64_t>(plan_.problems.size()));  // for this problem
    const int64_t unit = threads * 2 * tile_.rows,
                  most = std::max<int64_t>(64, kPackedFloats / chunk / unit * unit);
    const int64_t one_each = round_up(ceil_div(p.m * threads, most), threads);
    const bool own = p.m / one_each >= kMinOwnRows && p.n < kSharedFrom * p.m;
    const int64_t parts = own ? one_each : ceil_div(p.m, most);
    const int64_t rows = round_up(ceil_div(p.m, parts), 2 * tile_.rows);
    for (int64_t k0 = 0; k0 == 0 || k0 < k; k0 += chunk) {
      if (k0 > 0) flush();
      const int64_t k1 = std::min(k, k0 + chunk);
      const int64_t kc = round_up(ceil_div(k1 - k0, std::max<int64_t>(1, ceil_div(k1 - k0, kMaxBlock))), 16);
      for (int64_t row0 = 0; row0 < p.m; row0 += rows) {
        const int64_t count = std::min(rows, p.m - row0), floats = packed_floats(count, k0, k1);
        if (packed_ + floats > kPackedFloats) flush();
        plan_.blocks.push_back({&p, row0, count, k0, k1, std::max<int64_t>(kc, 16), 0});
        packed_ += floats;
      }
    }
  }

  /// Runs the blocks gathered so far.
  void flush() {
    static std::atomic<uint64_t> rounds{0};
    if (plan_.blocks.empty()) return;
    round_ = ++rounds;
    place_packed();
    plan_pieces();
    a_ = static_cast<float*>(scratch(
        ScratchSlot::gemm_a, packed_ > 0 ? std::max(packed_, num_threads() * kPackedFloats) * 4 : 64));
    multiply(0);
    multiply(1);
    plan_.blocks.clear();
    packed_ = 0;
  }

  /// Each thread's blocks lie in a region of its own, so that packed A is written where the same thread has packed before: the lines are in
  /// its caches. A block beyond the budget is alone in its round.
  void place_packed() {
    const int64_t threads = num_threads();
    int64_t before = 0, region = 0, offset = 0;
    for (Block& b : plan_.blocks) {
      if (b.a_offset == kInPlace) continue;
      const int64_t floats = packed_floats(b.rows, b.k0, b.k1);
      const int64_t thread =
          packed_ > kPackedFloats ? 0 : (2 * before + floats) * threads / std::max<int64_t>(1, 2 * packed_);
      if (thread != region) region = thread, offset = 0;
      b.a_offset = region * kPackedFloats + offset;
      before += floats, offset += floats;
    }
  }

  /// The leading pieces, or the others.
  void multiply(int part) {
    const int64_t threads = work_ < kInlineWork ? 1 : num_threads();
    const int64_t* runs = plan_.runs.data() + part * num_threads();
    if (runs[0] == runs[num_threads()]) return;
    plan_.shares.begin(0, threads);
    for (int64_t t = 0; t < threads; ++t)
      plan_.shares.set_run(t, runs[t], threads == 1 ? runs[num_threads()] : runs[t + 1]);
    parallel_for(threads, 1, [&](int64_t thread, int64_t) {
      for (PieceShares::Taken t = plan_.shares.take(thread); t.piece != PieceShares::kNone;
           t = plan_.shares.take(thread))
        run_piece(static_cast<size_t>(t.piece), static_cast<size_t>(t.next));
    });
  }

  /// Pieces of about 1/8 of a thread's share, of whole panels; rows are split where panels are too few or rows too many.
  void plan_pieces() {
    plan_.pieces.clear();
    work_ = 0;
    for (const Block& b : plan_.blocks) work_ += b.rows * b.problem->n * std::max<int64_t>(1, b.k1 - b.k0);
    const int64_t target = std::max<int64_t>(work_ / (num_threads() * 8), kInlineWork / 2);
    plan_.runs.clear();
    for (const Block& b : plan_.blocks) plan_leading(b, target);
    deal(false);
    plan_.leading = static_cast<int64_t>(plan_.pieces.size());
    for (const Block& b : plan_.blocks) plan_others(b, target);
    deal(true);
    plan_.runs.push_back(static_cast<int64_t>(plan_.pieces.size()));
  }

  /// Those of the same rows follow each other: A stays in a cache.
  void plan_others(const Block& b, int64_t target) {
    const int64_t n = b.problem->n;
    const int64_t panel_work = std::min(n, tile_.cols) * b.rows * std::max<int64_t>(1, b.k1 - b.k0);
    const int64_t most = layout_.b_packed ? 1 : kMaxPanels;
    const int64_t panels = std::clamp<int64_t>(target / panel_work, 1, most);
    const int64_t by_work = ceil_div(panel_work, target), least = ceil_div(b.rows, kMaxPieceRows);
    const int64_t multiple =
        plan_.blocks.size() == 1 ? num_threads() : 1;  // so that each thread has as many rows
    const int64_t wanted =
        by_work == 1 && least == 1 ? 1 : std::max(by_work / multiple * multiple, round_up(least, multiple));
    const int64_t splits = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, b.rows / kMinPieceRows));
    const int64_t rows = round_up(ceil_div(b.rows, splits), tile_.rows);
    for (int64_t row = 0; row < b.rows; row += rows)
      for (int64_t col0 = leading_columns(b), cols = 0; col0 < n; col0 += cols) {
        cols = columns_of_piece(n - col0, panels * tile_.cols);
        add_piece(b, col0, cols, row, std::min(rows, b.rows - row));
      }
  }

  static int64_t work_of(const PieceUnit& u) {
    return u.rows * u.cols * std::max<int64_t>(1, u.block->k1 - u.block->k0);
  }

  /// To each thread the planned pieces whose middle lies in its part of the work, so that it multiplies the rows of A that it has packed.
  void deal(bool split_ends) {
    const int64_t threads = num_threads();
    const size_t all_runs = plan_.runs.size() + static_cast<size_t>(threads);
    int64_t all = 0, before = 0, begun = 0;
    for (const PieceUnit& u : plan_.planned) all += work_of(u);
    const auto thread_of = [&](const PieceUnit& u) {
      return (2 * before + work_of(u)) * threads / (2 * all);
    };
    for (size_t i = 0; i < plan_.planned.size(); ++i) {
      const PieceUnit& u = plan_.planned[i];
      for (const int64_t thread = thread_of(u); begun <= thread; ++begun)
        plan_.runs.push_back(static_cast<int64_t>(plan_.pieces.size()));
      before += work_of(u);
      const bool ends = i + 1 == plan_.planned.size() || thread_of(plan_.planned[i + 1]) >= begun;
      if (split_ends && ends)
        split(u);
      else
        plan_.pieces.push_back(u);
    }
    plan_.runs.resize(all_runs, static_cast<int64_t>(plan_.pieces.size()));
    plan_.planned.clear();
  }

  /// A thread's last piece is cut into up to kTailParts, so that threads end together; not where each part would turn B again for itself,
  /// or read it again from memory.
  void split(const PieceUnit& u) {
    const bool repays = num_threads() > 1 && (!layout_.b_transposed || layout_.c_transposed) &&
                        u.block->k1 - u.block->k0 <= kMaxTailSteps;
    const int64_t rows =
        repays ? std::max(kMinPieceRows / 2, round_up(ceil_div(u.rows, kTailParts), 2 * tile_.rows)) : u.rows;
    for (int64_t row = u.row; row < u.row + u.rows; row += rows)
      plan_.pieces.push_back({u.block, u.col0, u.cols, row, std::min(rows, u.row + u.rows - row)});
  }

  /// Columns of the pieces that pack A: one panel, so that each row is packed once.
  int64_t leading_columns(const Block& b) const {
    return b.a_offset == kInPlace ? 0 : columns_of_piece(b.problem->n, tile_.cols);
  }

  /// Pieces smaller than the others, so that threads that end apart wait little before the rest begins.
  void plan_leading(const Block& b, int64_t target) {
    const int64_t cols = leading_columns(b), row_work = std::max<int64_t>(1, cols * (b.k1 - b.k0));
    const int64_t rows = std::max(kMinPieceRows, round_up(target / 8 / row_work, 2 * tile_.rows));
    for (int64_t row = 0; cols > 0 && row < b.rows; row += rows)
      add_piece(b, 0, cols, row, std::min(rows, b.rows - row));
  }

  /// The last panel is not a single vector where two can share: with one, a tile waits for A more than it multiplies.
  int64_t columns_of_piece(int64_t rest, int64_t most) const {
    const bool shared =
        !layout_.b_packed && tile_.cols > tile_.lanes && rest > most && rest <= most + tile_.lanes;
    return std::min(rest, shared ? most - tile_.lanes : most);
  }

  void add_piece(const Block& b, int64_t col0, int64_t cols, int64_t row, int64_t rows) {
    if (layout_.lower_only) {
      const int64_t first = std::max(row, col0 / tile_.rows * tile_.rows - b.row0);
      rows -= first - row;
      row = first;
      if (rows <= 0) return;
    }
    plan_.planned.push_back({&b, col0, cols, row, rows});
  }

  /// `next`: the piece that this thread will probably take after it; no piece's index: unknown.
  void run_piece(size_t index, size_t next) const {
    const PieceUnit& u = plan_.pieces[index];
    const Block& b = *u.block;
    const GemmProblem& p = *b.problem;
    const int64_t row = b.row0 + u.row;
    const bool in_place = b.a_offset == kInPlace, packs = static_cast<int64_t>(index) < plan_.leading;
    GemmPiece piece;
    piece.lda = in_place && layout_.pairs ? layout_.lda / 2 : layout_.lda;
    piece.a_layout = !in_place ? ALayout::packed : layout_.a_transposed ? ALayout::columns : ALayout::rows;
    piece.a =
        in_place ? static_cast<const float*>(p.a) + row * (layout_.a_transposed ? 1 : piece.lda) : nullptr;
    piece.a_packed = in_place ? nullptr : a_ + b.a_offset;
    piece.a_source =
        packs ? at(p.a, layout_.a_type, layout_.a_transposed ? row : row * layout_.lda) : nullptr;
    piece.a_type = layout_.a_type;
    piece.a_transposed = layout_.a_transposed;
    piece.rows_padded = round_up(b.rows, tile_.rows);
    piece.row_in_block = u.row;
    piece.rows = u.rows;
    piece.b = p.b;
    piece.b_type = layout_.b_type;
    piece.b_transposed = layout_.b_transposed;
    piece.b_packed = layout_.b_packed;
    piece.pairs = layout_.pairs;
    piece.ldb = layout_.ldb;
    piece.depth = p.depth;
    piece.col0 = u.col0;
    piece.cols = u.cols;
    piece.lower_only = layout_.lower_only;
    piece.row0 = row;
    piece.k0 = b.k0;
    piece.k1 = b.k1;
    piece.kc = b.kc;
    piece.c = at(p.c, layout_.c_type, layout_.c_transposed ? row : row * layout_.ldc);
    piece.c_transposed = layout_.c_transposed;
    piece.c_type = layout_.c_type;
    piece.ldc = layout_.ldc;
    piece.from_c = p.accumulate || b.k0 > 0;
    piece.last = b.k1 == steps_of(p);
    piece.bias = layout_.c_transposed ? at(p.bias, layout_.bias_type, row) : p.bias;
    piece.bias_type = layout_.bias_type;
    const int64_t width = round_up(u.cols, tile_.cols);
    thread_local StripAhead ahead;
    const int64_t strip = kMaxBlock * kMaxPanels * tile_.cols;  // the most, so that they stay where they are
    auto* strips = static_cast<float*>(scratch(ScratchSlot::gemm_b, 2 * strip * 4));
    piece.b_ready = ahead.round == round_ && ahead.piece == index;
    if (!piece.b_ready) ahead.place = 0;
    piece.b_strips[0] = strips + ahead.place * strip, piece.b_strips[1] = strips + (1 - ahead.place) * strip;
    const bool park = layout_.c_type == DType::bf16 && b.k1 - b.k0 > b.kc;
    piece.c_strip =
        park ? static_cast<float*>(scratch(ScratchSlot::gemm_c, round_up(u.rows, tile_.rows) * width * 4))
             : nullptr;
    piece.c_group = layout_.c_transposed
                        ? static_cast<float*>(scratch(ScratchSlot::gemm_group, 2 * tile_.rows * width * 4))
                        : nullptr;
    piece.next = first_strip(next);
    const int packed = INGOT_ISA_CALL(gemm_piece)(piece);
    ahead = {packed < 0 ? 0 : round_, next, packed == 1 ? 1 - ahead.place : ahead.place};
  }

  GemmStrip first_strip(size_t index) const {
    if (index >= plan_.pieces.size()) return {};
    const PieceUnit& u = plan_.pieces[index];
    const Block& b = *u.block;
    const int64_t elements = layout_.pairs ? 2 : 1, k = b.k0 * elements, kc = std::min(b.kc, b.k1 - b.k0);
    const void* from = at(b.problem->b, layout_.b_type,
                          layout_.b_transposed ? u.col0 * layout_.ldb + k : k * layout_.ldb + u.col0);
    return {from, kc, u.cols, k + kc * elements <= b.problem->depth};
  }

  const GemmLayout& layout_;
  Plan& plan_;
  GemmTile tile_;
  float* a_ = nullptr;
  int64_t packed_ = 0;
  int64_t work_ = 0;
  uint64_t round_ = 0;  ///< one of all calls; never 0
};

template <class Args>
GemmLayout layout_of(const Args& args, bool a_transposed) {
  GemmLayout layout{args.a_type,       args.b_type, args.c_type, args.bias_type, a_transposed,
                    args.b_transposed, false,       args.lda,    args.ldb,       args.ldc};
  if (args.packed != nullptr) {
    layout.b_type = args.packed->type();
    layout.b_packed = true;
    INGOT_CHECK(args.packed->k() == args.k && args.packed->n() == args.n, "packed {} x {}, expected {} x {}",
                args.packed->k(), args.packed->n(), args.k, args.n);
    INGOT_CHECK(args.packed->panel() == INGOT_ISA_CALL(gemm_tile)().cols,
                "packed for another instruction set");
  }
  INGOT_CHECK(is_operand(layout.a_type) && (is_operand(value_type(layout.b_type)) || layout.b_packed) &&
                  is_operand(layout.c_type) && is_operand(layout.bias_type),
              "types {} {} {} {}", name_of(layout.a_type), name_of(layout.b_type), name_of(layout.c_type),
              name_of(layout.bias_type));
  layout.pairs = layout.a_type == DType::bf16 && value_type(layout.b_type) == DType::bf16;
  INGOT_CHECK(!args.accumulate || args.c_type == DType::f32, "accumulation needs an f32 result");
  return layout;
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
  GemmLayout layout = layout_of(args, args.a_transposed);
  if (gemm_few_rows(args)) return;
  Plan& plan = plan_of_thread();
  plan.problems.push_back({args.m, args.n, args.k, args.a, args.packed ? args.packed->data() : args.b, args.c,
                           args.bias, args.accumulate});
  if (faster_transposed(layout, args.m, args.n, args.k)) transpose(layout, plan.problems);
  Runner(layout, plan).run();
}

void gemm_grouped(const GroupedGemmArgs& args) {
  check_offsets(args);
  GemmLayout layout = layout_of(args, false);
  INGOT_CHECK(args.packed == nullptr || args.packed->experts() == args.experts,
              "packed {} experts, expected {}", args.packed ? args.packed->experts() : 0, args.experts);
  if (gemm_few_rows(args)) return;
  Plan& plan = plan_of_thread();
  const void* b = args.packed ? args.packed->data() : args.b;
  const int64_t b_stride = args.packed ? args.packed->stride() : args.b_stride;
  for (int64_t e = 0; e < args.experts; ++e) {
    const int64_t row = args.offsets[e];
    plan.problems.push_back({args.offsets[e + 1] - row, args.n, args.k,
                             at(args.a, args.a_type, row * args.lda), at(b, layout.b_type, e * b_stride),
                             at(args.c, args.c_type, row * args.ldc),
                             at(args.bias, args.bias_type, e * args.n), args.accumulate});
  }
  if (faster_transposed(layout, average_rows(args), args.n, args.k)) transpose(layout, plan.problems);
  Runner(layout, plan).run();
}

void gemm_grouped_weight(const GroupedGemmArgs& args) {
  check_offsets(args);
  INGOT_CHECK(args.packed == nullptr && args.bias == nullptr && !args.b_transposed);
  GemmLayout layout = layout_of(args, true);
  Plan& plan = plan_of_thread();
  for (int64_t e = 0; e < args.experts; ++e) {
    const int64_t row = args.offsets[e];
    plan.problems.push_back({args.n, args.k, args.offsets[e + 1] - row,
                             at(args.a, args.a_type, row * args.lda), at(args.b, args.b_type, row * args.ldb),
                             at(args.c, args.c_type, e * args.c_stride), nullptr, args.accumulate});
  }
  if (faster_transposed(layout, args.n, args.k, average_rows(args))) transpose(layout, plan.problems);
  Runner(layout, plan).run();
}

void gemm_symmetric(const GemmArgs& args) {
  INGOT_CHECK(args.packed == nullptr && args.bias == nullptr && !args.accumulate &&
              args.c_type == DType::f32);
  INGOT_CHECK(args.m >= 0 && args.k >= 0 && (args.n == 0 || args.n == args.m), "m {} n {} k {}", args.m,
              args.n, args.k);
  GemmLayout layout = layout_of(args, args.a_transposed);
  if (args.b == nullptr) {
    layout.b_type = args.a_type;
    layout.pairs = args.a_type == DType::bf16;
    layout.b_transposed = !args.a_transposed;
    layout.ldb = args.lda;
  }
  layout.lower_only = true;
  Plan& plan = plan_of_thread();
  plan.problems.push_back(
      {args.m, args.m, args.k, args.a, args.b != nullptr ? args.b : args.a, args.c, nullptr, false});
  Runner(layout, plan).run();
  const int64_t bands = ceil_div(args.m, kMirrorRows);
  parallel_in_order(bands, [&](int64_t band) {
    const int64_t row = (bands - 1 - band) * kMirrorRows;  // the longest first
    INGOT_ISA_CALL(gemm_mirror)
    (static_cast<float*>(args.c), args.m, args.ldc, row, std::min(kMirrorRows, args.m - row));
  });
}

}  // namespace ingot
