// Small decoders that between them use every option, with weights that are not special (no ones, no zeros):
// what invariance, golden and tape tests run.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "data/batch.h"
#include "models/model.h"

namespace ingot::test {

/// gpt2, llama, llama-window, llama-patterns, llama-half, llama-unrotated, llama-neighbours, mla, mla-direct,
/// moe, moe-shared, moe-sigmoid, moe-latent, llama-lora, mla-lora, mtp, mtp-moe, zaya-dense, zaya, record.
std::vector<std::string> small_model_names();
ModelConfig small_model_config(const std::string& name);
/// The model with initial weights of `seed`, every constant parameter perturbed, and uneven router biases.
std::unique_ptr<Model> small_model(const std::string& name, const Precision& precision, uint64_t seed = 5);

/// Rows of `length` tokens packed with documents of the given lengths in order (their sum must be rows *
/// length); targets are the next token of the document, masked at its end.
data::Batch packed_batch(int64_t rows, int64_t length, const std::vector<int64_t>& documents, int64_t vocab,
                         uint64_t seed = 9);

}  // namespace ingot::test
