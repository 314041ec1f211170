// sequence_balance: the router's balance loss within each document ([DeepSeek-V3] §2.1.2, sequence-wise
// auxiliary loss).
//
//   loss = 1 / T sum_d T_d L_d,   L_d = E / (k T_d^2) sum_i n_di sum_{t in d} P_ti
//
// over the documents d of the call, T_d tokens each. It is the mean over tokens of their document's loss, so
// packing does not change it. P as in ops/route (fractions of softmax or sigmoid). n_di counts the plain
// top-k of the scores, without bias and groups, and is a constant for the gradient. Perfect balance in every
// document gives 1.
//
// Shapes: logits_TE (f32, or f64), documents (i32, optional: ops/sequence/documents.h, in place of the
// attributes' rows) -> loss_1 (logits' type), ids_TK (i32: the plain choices). Without tokens
// it is 0. A document's sums begin at its first row, in chunks of 64 rows; each document is summed by one
// thread.
#pragma once
#include "ops/route/route.h"
#include "ops/sequence/documents.h"

namespace ingot {

struct SequenceBalanceAttr {
  RouteAttr scores;                   ///< score, experts, k; the rest at its defaults
  const BatchLayout* rows = nullptr;  ///< nullptr: all rows are one document
};

Value sequence_balance(Tape& tape, const SequenceBalanceAttr& attr, const Value& logits_TE,
                       const Value& documents = {});

const Op& sequence_balance_op();
Kernel sequence_balance_reference();

// What both kernels use.
/// The documents of a call that have rows.
std::vector<SequenceSpan> balance_documents(const OpCall& call);
/// E / (k T): times n_di / T_d it multiplies a document's mass of expert i.
double balance_factor(const OpCall& call);

}  // namespace ingot
