// merge_vocabulary: the statistics of a next-token distribution (ops/head) from those over shards of the
// vocabulary, one per rank of an axis.
//
//   lse      = log sum_r exp(lse_r)
//   logprob  = l[target] - lse, with l[target] = logprob_r + lse_r on the rank r that has the target
//   entropy  = lse - sum_r exp(lse_r - lse) (lse_r - entropy_r)
//
// logprob_T, lse_T, entropy_T (f32 or f64; entropy may be empty): this rank's head over its rows, whose
// targets are those of shard_index with elsewhere = 0. local_T (i32): the targets with elsewhere = -1, so -1
// where the target is masked or on another rank. targets_T (i32): the targets of the whole vocabulary; -1:
// masked, statistics and gradients are 0. Outputs are equal on all ranks, and so must their cotangents be;
// backward communicates nothing.
#pragma once
#include "ops/collective/collective.h"
#include "ops/head/head.h"

namespace ingot {

/// kl and best are absent: they need whole rows.
HeadResult merge_vocabulary(Tape& tape, Communicator* axis, const HeadResult& part, const Value& local_T,
                            const Value& targets_T);

const Op& merge_vocabulary_op();

}  // namespace ingot
