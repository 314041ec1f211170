// The ops of context ranks: the transfers with_halo, without_halo, rows_to_heads and heads_to_rows have the
// right values, adjoints (<C x, y> = <x, C^T y>) and bytes; context_attention, in both forms and in a mix
// with heads, equals ops/attention in double; and chunks have equal work.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "base/philox.h"
#include "comm/threads.h"
#include "nn/context_region.h"
#include "ops/context/context_attention.h"
#include "ops/context/heads.h"
#include "ops/reference.h"
#include "parallel/rank_groups.h"
#include "support/counting_communicator.h"
#include "tape/backward.h"

namespace ingot::test::context_ranks_test {

using reference::Array;
constexpr int64_t kLength = 24, kSequences = 2, kTokens = kLength * kSequences;

/// Documents of two sequences: across chunks, inside one, at chunk boundaries, of one token.
BatchLayout documents() {
  BatchLayout rows;
  for (const int64_t n : {11, 1, 5, 7, 24}) {
    rows.spans.push_back({rows.count, n, 0, nullptr, rows.count % kLength});
    rows.count += n;
  }
  return rows;
}

ContextRows chunks(int rank, int ranks) {
  static const std::vector<int32_t> positions(kTokens, 0);
  return ContextRows(documents(), kLength, positions.data(), rank, ranks);
}

std::vector<int> all_of(int n) {
  std::vector<int> members;
  for (int i = 0; i < n; ++i) members.push_back(i);
  return members;
}

Array draw(int64_t n, uint64_t stream) {
  const Random random(12, RandomPurpose::test, stream);
  Array a(static_cast<size_t>(n));
  for (size_t i = 0; i < a.size(); ++i) a[i] = random.normal(i);
  return a;
}

double dot(const Array& a, const Array& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// A rank's rows of [kTokens, width].
Array share_of(const ContextRows& rows, const Array& whole, int64_t width) {
  Array share;
  for (int64_t r = 0; r < rows.count(); ++r) {
    const auto from = whole.begin() + rows.whole_row(rows.rank(), r) * width;
    share.insert(share.end(), from, from + width);
  }
  return share;
}

TEST(ContextRows, EveryRowHasOneOwnerAndCausalWorkIsEven) {
  for (const int ranks : {2, 3, 4}) {
    std::set<int64_t> seen;
    double least = 1e9, most = 0;
    for (int r = 0; r < ranks; ++r) {
      const ContextRows rows = chunks(r, ranks);
      double work = 0;
      int64_t in_pieces = 0;
      for (int64_t i = 0; i < rows.count(); ++i) {
        EXPECT_TRUE(seen.insert(rows.whole_row(r, i)).second);
        work += static_cast<double>(rows.whole_row(r, i) % kLength + 1);
      }
      for (const ContextPiece& p : rows.pieces(r)) {
        in_pieces += p.rows;
        const SequenceSpan& d = rows.whole().spans[static_cast<size_t>(p.document)];
        EXPECT_EQ(rows.whole_row(r, p.row), d.row_begin + p.first);
      }
      EXPECT_EQ(in_pieces, rows.count());
      EXPECT_EQ(rows.with_halo().count, rows.count() + 2 * ContextRows::kHalo * kSequences);
      least = std::min(least, work), most = std::max(most, work);
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(kTokens));
    EXPECT_EQ(least, most) << ranks;
  }
  EXPECT_THROW(chunks(0, 5), Error);   // 24 tokens in 10 chunks
  EXPECT_THROW(chunks(0, 12), Error);  // chunks of one token
}

TEST(ContextRows, OfNeighboursAreChunksOfChunks) {
  for (const auto& [ranks, neighbours] : {std::pair{4, 2}, {6, 2}, {6, 3}})
    for (int r = 0; r < ranks; ++r) {
      const ContextRows rows(documents(), kLength, std::vector<int32_t>(kTokens, 0).data(), r, ranks,
                             neighbours);
      const ContextRows &inner = rows.inner(), &outer = rows.outer();
      ASSERT_EQ(inner.ranks(), neighbours);
      ASSERT_EQ(outer.ranks(), ranks / neighbours);
      for (int64_t i = 0; i < rows.count(); ++i)
        EXPECT_EQ(outer.whole_row(outer.rank(), inner.whole_row(inner.rank(), i)), rows.whole_row(r, i))
            << ranks << " " << neighbours;
    }
}

struct Transfer {
  const char* name;
  Value (*build)(Tape&, const ContextAttr&, const Value&);
  int64_t rows, width;  ///< of x, for 2 ranks
};

const HeadsAttr kHeads{{}, {4, 2, 2}, {3, 3, 5}};
HeadsAttr heads_of(const ContextAttr& a) {
  return {a, {4, 2, 2}, {3, 3, 5}};
}

const Transfer kTransfers[] = {
    {"with_halo", [](Tape& t, const ContextAttr& a, const Value& x) { return with_halo(t, {a}, x); },
     kTokens / 2, 3},
    {"with_halo of some columns",
     [](Tape& t, const ContextAttr& a, const Value& x) {
       return with_halo(t, {a, 3, 2}, x);
     },
     kTokens / 2, 7},
    {"without_halo", without_halo, kTokens / 2 + 8, 3},
    {"rows_to_heads",
     [](Tape& t, const ContextAttr& a, const Value& x) { return rows_to_heads(t, heads_of(a), x); },
     kTokens / 2, 28},
    {"heads_to_rows",
     [](Tape& t, const ContextAttr& a, const Value& x) { return heads_to_rows(t, heads_of(a), x); }, kTokens,
     14}};

TEST(ContextTransfers, BackwardIsTheAdjointAndBytesAreThoseOfTheCost) {
  for (const Transfer& op : kTransfers) {
    Array forward(2), backward(2);
    run_ranks(2, [&](ThreadRank& self) {
      const auto me = static_cast<size_t>(self.rank());
      const auto group = self.group("context", {0, 1});
      CountingCommunicator counting(*group);
      const ContextRows rows = chunks(self.rank(), 2);
      HeapArena arena;
      TapeProfile profile;
      TapeOptions options;
      options.profile = &profile;
      Tape tape(arena, options);
      tape.begin_segment("test", -1);
      Array x = draw(op.rows * op.width, me);
      const Value leaf = tape.leaf(Tensor::of(x.data(), {op.rows, op.width}), true);
      const Value y = op.build(tape, {&counting, &rows}, leaf),
                  again = op.build(tape, {&counting, &rows}, leaf);
      Array d_y = draw(y.meta().shape.numel(), 10 + me);
      tape.seed(y, Tensor::of(d_y.data(), y.shape()));
      tape.seed(again, Tensor::of(d_y.data(), y.shape()));  // the second contribution accumulates
      forward[me] = 2 * dot(reference::load(y.tensor()), d_y);
      Backward(tape).run();
      backward[me] = dot(x, reference::load(tape.gradient(leaf)));
      const std::string name(op.name);
      EXPECT_EQ(counting.bytes, profile[name.substr(0, name.find(' '))].wire_bytes) << name;
    });
    EXPECT_NEAR(forward[0] + forward[1], backward[0] + backward[1], 1e-12) << op.name;
  }
}

TEST(ContextTransfers, HeadsComeInTheOrderOfTheSequences) {
  const Array whole = draw(kTokens * kHeads.packed(), 1);
  run_ranks(2, [&](ThreadRank& self) {
    const auto group = self.group("context", {0, 1});
    const ContextRows rows = chunks(self.rank(), 2);
    HeapArena arena;
    Tape tape(arena, {.record = false});
    tape.begin_segment("test", -1);
    Array x = share_of(rows, whole, kHeads.packed());
    const HeadsAttr attr = heads_of({group.get(), &rows});
    const Value y = rows_to_heads(tape, attr, tape.leaf(Tensor::of(x.data(), {rows.count(), attr.packed()})));
    const Array got = reference::load(y.tensor());
    for (int64_t t = 0; t < kTokens; ++t) {
      Array row(whole.begin() + t * 28, whole.begin() + (t + 1) * 28), mine;
      const int64_t r = self.rank();  // of 4 heads of 3, 2 of 3 and 2 of 5: the first or second half of each
      mine.insert(mine.end(), row.begin() + r * 6, row.begin() + r * 6 + 6);
      mine.insert(mine.end(), row.begin() + 12 + r * 3, row.begin() + 12 + r * 3 + 3);
      mine.insert(mine.end(), row.begin() + 18 + r * 5, row.begin() + 18 + r * 5 + 5);
      EXPECT_EQ(Array(got.begin() + t * 14, got.begin() + (t + 1) * 14), mine) << t;
    }
    EXPECT_EQ(reference::load(heads_to_rows(tape, attr, y).tensor()), x);
  });
}

struct Attended {
  Array o, lse, d_qkv;
};

Attended attend(const AttentionAttr& a, Array qkv, Array d_o,
                const std::function<AttentionResult(Tape&, const Value&)>& f) {
  HeapArena arena;
  Tape tape(arena, {});
  tape.begin_segment("test", -1);
  const int64_t count = static_cast<int64_t>(qkv.size()) / a.packed_width();
  const Value x = tape.leaf(Tensor::of(qkv.data(), {count, a.packed_width()}), true);
  const AttentionResult r = f(tape, x);
  tape.seed(r.o, Tensor::of(d_o.data(), r.o.shape()));
  Attended out{reference::load(r.o.tensor()), reference::load(r.lse.tensor()), {}};
  Backward(tape).run();
  out.d_qkv = reference::load(tape.gradient(x));
  return out;
}

Attended attend(const AttentionAttr& a, const ContextRows* rows, Communicator* comm, bool ring, Array qkv,
                Array d_o) {
  return attend(a, std::move(qkv), std::move(d_o), [&](Tape& tape, const Value& x) {
    return rows != nullptr ? context_attention(tape, {a, {comm, rows}, ring}, x) : attention(tape, a, x);
  });
}

/// Attention in the type of `qkv_type`: values are rounded to it first.
Attended attend_in(DType type, const AttentionAttr& a, const ContextRows* rows, Communicator* comm, bool ring,
                   const Array& qkv, const Array& d_o) {
  HeapArena arena;
  Tape tape(arena, {});
  tape.begin_segment("test", -1);
  const auto tensor = [&](Buffer& memory, const Array& values, int64_t width) {
    memory = Buffer(static_cast<int64_t>(values.size()) * size_of(type));
    const Tensor t(memory.data(), {static_cast<int64_t>(values.size()) / width, width}, type);
    reference::store(t, values);
    return t;
  };
  Buffer in, out;
  const Value x = tape.leaf(tensor(in, qkv, a.packed_width()), true);
  const AttentionResult r =
      rows != nullptr ? context_attention(tape, {a, {comm, rows}, ring}, x) : attention(tape, a, x);
  tape.seed(r.o, tensor(out, d_o, a.heads * a.values()));
  Attended result{reference::load(r.o.tensor()), reference::load(r.lse.tensor()), {}};
  Backward(tape).run();
  result.d_qkv = reference::load(tape.gradient(x));
  return result;
}

void expect_near(const Array& found, const Array& expected, const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) worst = std::max(worst, std::abs(found[i] - expected[i]));
  EXPECT_LE(worst, 1e-13) << what;
}

TEST(ContextAttention, EqualsAttentionOfTheWhole) {
  AttentionAttr plain{4, 2, 6}, window{4, 2, 6}, blocks{2, 2, 4};
  window.window = 5, window.softcap = 3, window.value_width = 3;
  blocks.window = 8, blocks.window_block = 4;
  const BatchLayout whole = documents();
  for (AttentionAttr a : {plain, window, blocks}) {
    a.rows = &whole;
    const Array qkv = draw(kTokens * a.packed_width(), 2), d_o = draw(kTokens * a.heads * a.values(), 3);
    const Attended one = attend(a, nullptr, nullptr, false, qkv, d_o);
    for (const int ranks : {2, 3, 4})
      for (const bool ring : {false, true})
        run_ranks(ranks, [&](ThreadRank& self) {
          const auto group = self.group("context", all_of(ranks));
          const ContextRows rows = chunks(self.rank(), ranks);
          const auto share = [&](const Array& values, int64_t width) {
            return share_of(rows, values, width);
          };
          const Attended got = attend(a, &rows, group.get(), ring, share(qkv, a.packed_width()),
                                      share(d_o, a.heads * a.values()));
          expect_near(got.o, share(one.o, a.heads * a.values()), "o");
          expect_near(got.lse, share(one.lse, a.heads), "lse");
          expect_near(got.d_qkv, share(one.d_qkv, a.packed_width()), "d_qkv");
        });
  }
}

/// Neighbours have whole heads of each other's chunks; the rest comes from other groups of them.
TEST(ContextAttention, MixEqualsAttentionOfTheWhole) {
  const BatchLayout whole = documents();
  AttentionAttr a{12, 6, 4};
  a.window = 9, a.value_width = 3, a.rows = &whole;
  const int64_t width = a.heads * a.values();
  const Array qkv = draw(kTokens * a.packed_width(), 4), d_o = draw(kTokens * width, 5);
  const Attended one = attend(a, nullptr, nullptr, false, qkv, d_o);
  const WeightSet no_weights(ParameterTable(), {}, Precision::f64());
  for (const auto& [ranks, neighbours] : {std::pair{4, 2}, {6, 2}, {6, 3}})
    for (const ContextForm form : {ContextForm::gather, ContextForm::ring})
      run_ranks(ranks, [&](ThreadRank& self) {
        const RankGroups groups(Grid({.cp = ranks}), self.rank(),
                                [&](const std::string& name, const std::vector<int>& members) {
                                  return self.group(name, members);
                                },
                                {.context = form, .context_inner = neighbours});
        const ContextRows rows(documents(), kLength, std::vector<int32_t>(kTokens, 0).data(), self.rank(),
                               ranks, neighbours);
        const auto share = [&](const Array& values, int64_t w) { return share_of(rows, values, w); };
        const Attended got =
            attend(a, share(qkv, a.packed_width()), share(d_o, width), [&](Tape& tape, const Value& x) {
              Context c{tape, no_weights};
              groups.join(c);
              c.context_rows = &rows;
              return ingot::attend(c, a, x);
            });
        expect_near(got.o, share(one.o, width), "o");
        expect_near(got.d_qkv, share(one.d_qkv, a.packed_width()), "d_qkv");
      });
}

/// Largest difference relative to the largest element.
double relative_difference(const Array& found, const Array& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double worst = 0, scale = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    worst = std::max(worst, std::abs(found[i] - expected[i]));
    scale = std::max(scale, std::abs(expected[i]));
  }
  return worst / scale;
}

/// Chunks of many blocks of keys, which begin at any token of a document, against the ordinary kernel.
TEST(ContextAttention, FastKernelEqualsTheOrdinaryOne) {
  constexpr int64_t kLong = 480, kAll = 2 * kLong;
  AttentionAttr plain{4, 2, 24}, window{4, 1, 16}, blocks{2, 2, 8};
  window.window = 70, window.softcap = 3, window.value_width = 5;
  blocks.window = 96, blocks.window_block = 32;
  BatchLayout whole;
  for (const int64_t n : {301, 1, 130, 48, 480}) {
    whole.spans.push_back({whole.count, n, 0, nullptr, whole.count % kLong});
    whole.count += n;
  }
  const std::vector<int32_t> positions(kAll, 0);
  const KernelPolicy before = kernel_policy();
  set_kernel_policy(KernelPolicy::strict);
  for (AttentionAttr a : {plain, window, blocks})
    for (const DType type : {DType::f32, DType::bf16}) {
      a.rows = &whole;
      const int64_t width = a.heads * a.values();
      const Array qkv = draw(kAll * a.packed_width(), 2), d_o = draw(kAll * width, 3);
      const Attended one = attend_in(type, a, nullptr, nullptr, false, qkv, d_o);
      const double bound =
          type == DType::f32 ? 5e-6 : 2e-2;  // of sums in another order; of roundings of o and of cotangents
      for (const int ranks : {2, 3})
        for (const bool ring : {false, true})
          run_ranks(ranks, [&](ThreadRank& self) {
            const auto group = self.group("context", all_of(ranks));
            const ContextRows rows(whole, kLong, positions.data(), self.rank(), ranks);
            const auto share = [&](const Array& values, int64_t w) { return share_of(rows, values, w); };
            const Attended got =
                attend_in(type, a, &rows, group.get(), ring, share(qkv, a.packed_width()), share(d_o, width));
            EXPECT_LE(relative_difference(got.o, share(one.o, width)), bound)
                << name_of(type) << " ranks " << ranks << " ring " << ring;
            EXPECT_LE(relative_difference(got.lse, share(one.lse, a.heads)), 1e-6) << name_of(type);
            EXPECT_LE(relative_difference(got.d_qkv, share(one.d_qkv, a.packed_width())), bound)
                << name_of(type) << " ranks " << ranks << " ring " << ring;
          });
    }
  set_kernel_policy(before);
}

}  // namespace ingot::test::context_ranks_test
