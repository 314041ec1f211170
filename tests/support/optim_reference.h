// The optimizers written plainly in double: the oracle of the fast ones, and their definition. One tensor at
// a time, no threads, no blocking.
#pragma once
#include <cstdint>
#include <vector>

#include "optim/adamw.h"
#include "optim/muon.h"

namespace ingot::reference {

using Values = std::vector<double>;

/// Update number t (from 1) of one tensor; see adamw.h. m and v start as zeros.
void adamw(Values& w, Values& m, Values& v, const Values& grad, const AdamWConfig& config, double lr,
           double weight_decay, int64_t t, double grad_scale);

/// Update number t of one tensor by AdEMAMix; see adamw.h. m, slow and v start as zeros.
void ademamix(Values& w, Values& m, Values& slow, Values& v, const Values& grad, const AdamWConfig& config,
              const AdEMAMixConfig& mix, double lr, double weight_decay, int64_t t, double grad_scale);

/// The orthogonalised form of a row-major [rows, cols] matrix; see newton_schulz.h. its precision is ignored.
Values newton_schulz(const Values& g, int64_t rows, int64_t cols, const NewtonSchulzConfig& config);

/// One Muon update of one [rows, cols] matrix with momentum `beta`; see muon.h.
void muon(Values& w, Values& momentum, const Values& grad, int64_t rows, int64_t cols,
          const MuonConfig& config, double beta, double lr, double weight_decay, double grad_scale);

}  // namespace ingot::reference
