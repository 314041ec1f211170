// The interface between planning and threads (gemm.cpp) and the code of one instruction set: packing
// (isa_gemm_pack.cpp), the loops around the micro-kernel (isa_gemm.cpp) and transposed results
// (isa_gemm_transpose.cpp). Internal to this folder.
//
// Words as in BLIS (Van Zee and van de Geijn, 2015): the micro-kernel computes a tile of mr x nr elements of
// C over kc k-steps; A is packed into micro-panels of mr rows, B into micro-panels of nr columns; a packed
// panel of B is kc k-steps of the columns of a task and stays in the level 2 cache.
//
// A k-step multiplies one 32-bit word of A and of B: one k, widened to f32; or, where both operands are bf16
// (`pairs`), two of them: k = 2 step in the low half, 2 step + 1 in the high half, 0 beyond an odd k. k0, k1
// and kc below count k-steps.
//
// Packed A (mc rows, up to a multiple of mr, x k1-k0): for each kc k-steps, for each micro-panel: [kc][mr]
// words, missing rows 0. Packed B: micro-panels of nr columns, each [kc][width] words, width = its columns up
// to whole vectors.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "device/simd/isa.h"

namespace ingot {

/// A or B: the element of row i of A (or column i of B) at k lies `i * stride + k * k_stride` elements after
/// base. One of the strides is 1.
struct GemmOperand {
  const void* base = nullptr;
  DType type = DType::f32;
  int64_t stride = 0, k_stride = 0;
  bool round = false;  ///< f32 elements of B count as their rounding to bf16

  [[gnu::always_inline]] bool is_bf16() const { return type == DType::bf16 || round; }
  [[gnu::always_inline]] bool k_contiguous() const { return k_stride == 1; }
  /// Elements from line to line as stored.
  [[gnu::always_inline]] int64_t ld() const { return k_contiguous() ? stride : k_stride; }
  [[gnu::always_inline]] int64_t size() const { return type == DType::bf16 ? 2 : 4; }
  [[gnu::always_inline]] const char* at(int64_t i, int64_t k) const {
    return static_cast<const char*>(base) + (i * stride + k * k_stride) * size();
  }
};

/// C stored [m, n], or [n, m] where it is transposed; `stride` elements from line to line as stored. The bias
/// is one of the n columns; where C is transposed, of the m rows.
struct GemmResult {
  void* base = nullptr;
  DType type = DType::f32;
  int64_t stride = 0;
  bool transposed = false;
  const void* bias = nullptr;
  DType bias_type = DType::f32;

  [[gnu::always_inline]] int64_t size() const { return type == DType::bf16 ? 2 : 4; }
  [[gnu::always_inline]] int64_t bias_size() const { return bias_type == DType::bf16 ? 2 : 4; }
};

/// How the micro-kernel reads A: packed, or in place, from rows (k contiguous) or columns.
enum class APath : uint8_t { packed, rows, columns };

constexpr int64_t kMaxMicroPanels = 2;  ///< columns of a task, in micro-panels

/// Of the micro-kernel: its tile, the lanes of a vector, and the most k-steps of a packed panel of B, of
/// which a thread has two in the level 2 cache.
struct GemmTileShape {
  int64_t mr, nr, lanes, max_kc;
};

/// Packs rows of A, k-steps k .. k + kc, into micro-panels.
struct GemmPackA {
  GemmOperand a;  ///< base: (first of the rows, k 0)
  bool pairs;
  int64_t depth;  ///< k of the problem, in elements
  int64_t rows, k, kc;
  float* out;
};

/// Packs columns of B, k-steps k0 .. k0 + kc, into one micro-panel.
struct GemmPackB {
  GemmOperand b;  ///< base: (column 0, k 0) of the problem
  bool pairs;
  int64_t depth;               ///< k of the problem, in elements
  int64_t k0, kc, col0, cols;  ///< cols <= nr
  float* out;                  ///< [kc][width]
};

/// The packed panel of B that the thread will need next.
struct GemmNextPanel {
  const void* b = nullptr;  ///< element (its first k-step, its first column); nullptr: unknown
  int64_t kc = 0, cols = 0;
  bool full_pairs = false;  ///< no k-step lacks half of its pair
};

/// Where a task finds its rows of packed A: rows row .. of a block of `rows_padded` rows.
struct GemmPackedA {
  float* block = nullptr;
  int64_t rows_padded = 0, row = 0;
  bool packs = false;  ///< the task packs them while it multiplies; it is one micro-panel wide
};

/// Scratch of a task.
struct GemmBuffers {
  float* b[2];    ///< for packed panels of B, the first one's first: kc x cols up to whole micro-panels
  bool b_ready;   ///< the thread's task before has packed the first one
  float* c_rows;  ///< where C is transposed: 2 mr x cols up to whole micro-panels, before they are transposed
  float* c_sums;  ///< rows x cols up to whole micro-panels: f32 sums where C is bf16 and k1 - k0 > kc
};

/// What one thread computes at a time: rows x cols of C, at most kMaxMicroPanels wide, over k-steps k0 .. k1,
/// kc at a time.
struct GemmTask {
  GemmOperand a;  ///< base: (first row of the task, k 0)
  APath a_path;
  GemmPackedA packed_a;  ///< APath::packed
  /// base: (column 0, k 0) of the problem; or PackedWeights: f32 words, pairs of bf16 (whatever A is), or u8
  GemmOperand b;
  bool b_packed;  ///< PackedWeights
  bool pairs;
  bool lower_only;  ///< a symmetric product: vectors above the diagonal are left alone
  int64_t depth;    ///< k of the problem, in elements
  int64_t row0, rows, col0, cols;
  int64_t k0, k1, kc;
  GemmResult c;  ///< base: (first row of the task, column 0); a bias of rows begins at the task's first row
  bool from_c;   ///< sums start from C
  bool last;     ///< k1 is the end: add the bias, round
  GemmNextPanel next;  ///< of the thread's next task
  GemmBuffers buffers;
};

/// Up to 2 mr rows x cols of sums, and C stored [n, m].
struct GemmTransposedC {
  float* sums;
  int64_t width;  ///< words from row to row of `sums`: cols up to whole vectors, or more
  int64_t rows, cols;
  GemmResult c;  ///< base: (row 0, column 0); bias: of row 0, nullptr: none
};

INGOT_ISA_KERNEL(GemmTileShape, gemm_tile_shape, ());
INGOT_ISA_KERNEL(void, gemm_pack_a, (const GemmPackA& args));
INGOT_ISA_KERNEL(void, gemm_pack_b, (const GemmPackB& args));
/// Runs a task. Returns which of buffers.b holds the next task's packed panel; -1: none.
INGOT_ISA_KERNEL(int, gemm_run_task, (const GemmTask& task));
/// sums = Cᵀ (f32), and C = (sums + bias)ᵀ.
INGOT_ISA_KERNEL(void, gemm_load_c_transposed, (const GemmTransposedC& args));
INGOT_ISA_KERNEL(void, gemm_store_c_transposed, (const GemmTransposedC& args));
/// Of C [m, m]: copies the elements left of the diagonal in rows [row0, row0 + rows) to above it. row0 is a
/// multiple of kMirrorRows.
INGOT_ISA_KERNEL(void, gemm_mirror, (float* c, int64_t m, int64_t ldc, int64_t row0, int64_t rows));
constexpr int64_t kMirrorRows = 16;

}  // namespace ingot
