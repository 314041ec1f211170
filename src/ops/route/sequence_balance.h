// sequence_balance: DeepSeek's balance loss within each sequence (spec megatron-moe LB-2).
//
//   loss = 1/T sum_d T_d L_d,   L_d = E / (k T_d^2) * sum_i n_di sum_{t in d} P_ti
//
// over the documents d of the call, T_d tokens each: the mean over tokens of their document's loss, so that packing does
// not change it. P as in route.h (shares of softmax or sigmoid). n_di counts the plain top-k of the scores, without bias
// and groups, and is a constant for the gradient. Perfect balance in every document gives 1.
//
// Shapes: logits_TE (f32; f64 in double) -> loss_1 (logits' type), ids_TK (i32: the plain choices). Empty T gives 0.
// Document sums are taken from the document's first row in chunks of 64 rows, one document per thread.
#pragma once
#include "ops/route/route.h"
#include "ops/sequence/batch_layout.h"

namespace ingot {

struct SequenceBalanceAttr {
  RouteAttr scores;                   ///< score, experts, k; the rest at its defaults
  const BatchLayout* rows = nullptr;  ///< nullptr: all rows are one document
};

Value sequence_balance(Tape& tape, const SequenceBalanceAttr& attr, const Value& logits_TE);

const Op& sequence_balance_op();

}  // namespace ingot
