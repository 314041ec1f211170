// attention: heads and groups, windows, soft caps, documents of odd lengths; masks against known results.
#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/op_check.h"
#include "support/sequence_cases.h"

namespace ingot::test::attention_test {

struct Options {
  int64_t heads = 2, kv_heads = 1, width = 8, window = 0;
  double softcap = 0, scale = 0;
  DType type = DType::f32;
  int64_t values = 0;  ///< width of values; 0: the same width
  int64_t block = 0;   ///< block of the window
};

/// `list`: the capacity of a list of documents, which the call then has in place of a layout.
void check(const Options& o, const std::vector<int64_t>& lengths, int64_t list = 0) {
  BatchLayout rows = make_rows(lengths);
  for (SequenceSpan& s : rows.spans) s.phase = s.row_begin;
  OpCase c;
  c.name = fmt::format("attention {}/{}x{}/{} window={}/{} cap={} docs={} {}", o.heads, o.kv_heads, o.width,
                       o.values, o.window, o.block, o.softcap, describe(rows), name_of(o.type));
  c.op = &attention_op();
  AttentionAttr attr{o.heads, o.kv_heads, o.width, o.scale, o.window, o.softcap, &rows, 0, o.values, o.block};
  if (lengths.size() == 1) {
    attr.rows = nullptr;
    c.output_row_indexed = {true, true, false};
  }
  c.inputs = {{.meta = {{rows.count, attr.packed_width()}, o.type}, .row_indexed = true}};
  if (list > 0) {
    attr.rows = nullptr;
    c.name += fmt::format(" in a list of {}", list);
    c.inputs.push_back(list_of(rows, list));
    c.output_row_indexed.clear();
  }
  c.attr = c.attr_double = AttrBox(attr);
  c.finite_differences = rows.count * o.width * o.heads <= 600;
  c.value_tolerance = c.gradient_tolerance = 1e-5;
  c.rounds_between = true;
  check_op(c);
}

TEST(Attention, HeadsAndGroups) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const auto& [heads, kv_heads] :
         {std::pair<int64_t, int64_t>{1, 1}, {2, 1}, {2, 2}, {3, 1}, {4, 1}, {8, 2}})
      for (const int64_t width : {8, 20}) {
        check({heads, kv_heads, width, 0, 0, 0, type}, {7});
        check({heads, kv_heads, width, 0, 0, 0, type}, {3, 1, 0, 5});
      }
}

TEST(Attention, WindowsAndCaps) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const int64_t window : {1, 2, 5, 100})
      for (const double cap : {0.0, 2.0}) {
        check({2, 1, 8, window, cap, 0, type}, {9});
        check({4, 2, 8, window, cap, 0.5, type}, {1, 6, 1, 11});
      }
}

TEST(Attention, WindowsInBlocks) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const auto& [window, block] : {std::pair<int64_t, int64_t>{4, 4}, {8, 4}, {3, 1}, {6, 3}}) {
      check({2, 1, 8, window, 0, 0, type, 0, block}, {13});
      check({2, 2, 8, window, 2, 0.5, type, 0, block}, {1, 6, 1, 11});
      check({2, 1, 8, 16 * window, 0, 0, type, 0, 16 * block}, {70, 3, 150});  // across tiles of the kernel
    }
}

TEST(Attention, DocumentsInAList) {
  for (const DType type : {DType::f32, DType::bf16}) {
    check({4, 2, 8, 0, 0, 0, type}, {3, 1, 0, 5}, 3);
    check({3, 1, 8, 5, 2.0, 0.5, type}, {1, 6, 1, 11}, 16);
    check({2, 1, 8, 8, 0, 0, type, 0, 4}, {70, 3, 150}, 24);
    check({8, 2, 20, 0, 0, 0, type}, {64, 64, 128}, 3);
    check({2, 1, 8, 0, 0, 0, type, 144}, {130}, 16);
    check({2, 1, 8, 0, 0, 0, type}, {}, 16);
  }
}

TEST(Attention, ValuesOfAnotherWidth) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const auto& [width, values] : {std::pair<int64_t, int64_t>{12, 8}, {8, 20}, {24, 16}}) {
      check({2, 2, width, 0, 0, 0, type, values}, {7});
      check({4, 2, width, 3, 2.0, 0.5, type, values}, {3, 1, 0, 5});
      check({3, 1, 4 * width, 0, 0, 0, type, 4 * values}, {17, 140});
    }
  check({4, 1, 304, 0, 0, 0, DType::f32, 272}, {70});   // an absorbed latent head
  check({1, 1, 264, 0, 0, 0, DType::bf16, 136}, {66});  // channels of two slabs
}

TEST(Attention, LongDocumentsAndOddOffsets) {
  for (const DType type : {DType::f32, DType::bf16}) {
    check({2, 1, 64, 0, 0, 0, type}, {200});
    check({4, 2, 32, 0, 0, 0, type}, {33, 1, 64, 65, 0, 130});
    check({2, 2, 32, 70, 0, 0, type}, {17, 201});
    check({2, 1, 128, 0, 30, 0, type}, {77});
  }
}

TEST(Attention, ManyDocuments) {
  std::vector<int64_t> lengths(200);  // more than a launch of the kernels for GPUs takes
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<int64_t>(i % 4);
  check({4, 2, 8, 0, 0, 0, DType::f32}, lengths);
}

TEST(Attention, Empty) {
  check({2, 1, 16}, {});
  check({2, 1, 16}, {0});
  check({2, 1, 16}, {0, 0});
}

/// Equal keys: the output is the mean of the visible values, so the mask can be read off.
TEST(Attention, MaskIsCausalWindowedAndPerDocument) {
  const BatchLayout rows = make_rows({2, 4});
  std::vector<float> qkv(6 * 3, 0.0f), o(6), lse(6), max_logit(1);
  for (size_t t = 0; t < 6; ++t) qkv[t * 3 + 2] = static_cast<float>(1 << t);
  for (const int64_t window : {0, 2}) {
    const AttrBox attr(AttentionAttr{1, 1, 1, 0, window, 0, &rows, 0});
    const Tensor in[] = {Tensor::of(qkv.data(), {6, 3})};
    const Tensor out[] = {Tensor::of(o.data(), {6, 1}), Tensor::of(lse.data(), {6, 1}),
                          Tensor::of(max_logit.data(), {1})};
    for (const Kernel& kernel : attention_op().kernels) {
      if (!kernel.exact) continue;  // they take bf16
      kernel.forward({attr.data(), in, out, {}, {}});
      const double last = window == 2 ? (16 + 32) / 2.0 : (4 + 8 + 16 + 32) / 4.0;
      const double expected[] = {1, 1.5, 4, 6, window == 2 ? 12 : 28 / 3.0, last};
      for (size_t t = 0; t < 6; ++t)
        EXPECT_NEAR(o[t], expected[t], 1e-5 * expected[t]) << kernel.name << " row " << t;
      EXPECT_NEAR(lse[3], std::log(2.0), 1e-6);
      EXPECT_EQ(max_logit[0], 0.0f);
    }
  }
}

}  // namespace ingot::test::attention_test
