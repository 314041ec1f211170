// See micro_places.h.
#include "train/micro_places.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/round.h"
#include "ops/sequence/documents.h"

namespace ingot {
namespace {

constexpr int64_t kWord = sizeof(int32_t);
constexpr int64_t kLine = 64;  ///< bytes between the beginnings of places
constexpr int64_t kLineWords = kLine / kWord;
constexpr int64_t kLeastCapacity = 16;

}  // namespace

RouterSeeds router_seeds(const MoeConfig& moe, const StepTokens& step, int64_t rows) {
  const double weight = step.divisor * (static_cast<double>(rows) / static_cast<double>(step.all));
  return {static_cast<float>(moe.aux_coefficient * weight),
          static_cast<float>(moe.sequence_aux_coefficient * weight),
          static_cast<float>(moe.z_coefficient * weight)};
}

std::vector<float> known_cotangents(const ColumnSpans& columns, size_t tokens, double weight) {
  std::vector<float> d(tokens, -1.0F);
  if (!columns.cotangent.empty())
    d.assign(columns.cotangent.begin(), columns.cotangent.end());
  else
    for (size_t t = 0; t < columns.weight.size(); ++t) d[t] = -columns.weight[t];
  if (weight != 1)
    for (float& v : d) v *= static_cast<float>(weight);
  return d;
}

MicroPlaces::MicroPlaces(Device& device, const Model& model, int64_t rows)
    : device_(device),
      rows_(rows),
      depths_(model.config().mtp.depths),
      stride_(round_up(rows, kLineWords)),
      seeds_((4 + 3 * depths_) * stride_),
      documents_(seeds_ + kLineWords),
      most_documents_(most_documents(rows)),
      host_(static_cast<size_t>(documents_ + document_words(most_documents_))),
      inputs_(device.allocate(std::ssize(host_) * kWord)) {
  device_.name_memory(inputs_, std::ssize(host_) * kWord, "micro-batch", "inputs");
  const RunningCounts counts(model);
  for (const auto& [layer, counts_E1] : counts.layers()) {
    choice_layers_.push_back(layer);
    choice_words_ = std::ssize(counts_E1);
  }
  choice_bytes_ = std::ssize(choice_layers_) * round_up(choice_words_ * kWord, kLine);
  if (choice_bytes_ == 0) return;
  choices_ = device_.allocate(2 * choice_bytes_);
  device_.name_memory(choices_, 2 * choice_bytes_, "micro-batch", "choices of experts");
}

MicroPlaces::~MicroPlaces() {
  device_.release(inputs_, std::ssize(host_) * kWord);
  if (results_ != nullptr) device_.release(results_, result_bytes_);
  if (choices_ != nullptr) device_.release(choices_, 2 * choice_bytes_);
}

void MicroPlaces::begin_step() {
  if (choices_ != nullptr) device_.set_zero(choices_, choice_bytes_);
}

void MicroPlaces::begin_results() {
  next_ = 0;
  if (choices_ != nullptr)
    device_.copy(static_cast<std::byte*>(choices_) + choice_bytes_, choices_, choice_bytes_);
}

int64_t MicroPlaces::choices_at(int64_t layer) const {
  const auto found = std::find(choice_layers_.begin(), choice_layers_.end(), layer);
  INGOT_CHECK(found != choice_layers_.end(), "layer {} has no place for choices", layer);
  return (found - choice_layers_.begin()) * round_up(choice_words_ * kWord, kLine);
}

Tensor MicroPlaces::earlier_choices(int64_t layer) const {
  if (choices_ == nullptr) return {};
  return {static_cast<std::byte*>(choices_) + choice_bytes_ + choices_at(layer),
          {choice_words_},
          DType::f32,
          device_.kind()};
}

void MicroPlaces::add_choices(int64_t layer, const Tensor& counts_E) {
  INGOT_CHECK(counts_E.numel() == choice_words_ - 1, "choices {}", counts_E.meta.str());
  auto* const sums = static_cast<float*>(choices_) + choices_at(layer) / kWord;
  device_.add(sums, counts_E.data, counts_E.numel());
  device_.add(sums + counts_E.numel(), seed_at(3).data, 1);
}

Tensor MicroPlaces::words_at(int64_t first, const Shape& shape, DType type) const {
  return {static_cast<int32_t*>(inputs_) + first, shape, type, device_.kind()};
}

Tensor MicroPlaces::row_weights(int64_t depth) const {
  return words_at((3 + 3 * depth) * stride_, {rows_}, DType::f32);
}

Tensor MicroPlaces::documents() const {
  return capacity_ > 0 ? words_at(documents_, {document_words(capacity_)}, DType::i32) : Tensor();
}

void MicroPlaces::put(const MicroBatch& batch, const RouterSeeds& seeds) {
  INGOT_CHECK(batch.ids.numel() == rows_ && std::ssize(batch.mtp) == depths_ && batch.chunks == nullptr,
              "a micro-batch of {} rows and {} depths in the place of {} and {}", batch.ids.numel(),
              batch.mtp.size(), rows_, depths_);
  const auto write = [this](const Tensor& place, const void* from, int64_t count) {
    const int64_t at = static_cast<int32_t*>(place.data) - static_cast<int32_t*>(inputs_);
    if (count > 0) std::memcpy(host_.data() + at, from, static_cast<size_t>(count * kWord));
  };
  const auto write_head = [&](int64_t depth, const Tensor& column_ids, const Tensor& column_targets,
                              const ColumnSpans& columns, double weight) {
    const std::vector<float> weights = known_cotangents(columns, static_cast<size_t>(rows_), weight);
    write(ids(depth), column_ids.as<int32_t>(), rows_);
    write(targets(depth), column_targets.as<int32_t>(), rows_);
    write(row_weights(depth), weights.data(), rows_);
  };
  write(positions(), batch.positions.as<int32_t>(), rows_);
  write_head(0, batch.ids, batch.targets, batch.given, 1);
  for (int64_t k = 0; k < depths_; ++k) {
    const MtpInputs& ahead = batch.mtp[static_cast<size_t>(k)];
    write_head(k + 1, ahead.ids, ahead.targets, {}, ahead.weight);
  }
  write(aux_seed(), &seeds.aux, 1);
  write(sequence_seed(), &seeds.sequence, 1);
  write(z_seed(), &seeds.z, 1);
  const float one = 1;
  write(seed_at(3), &one, 1);
  const int64_t count = count_documents(batch.rows);
  capacity_ = kLeastCapacity;
  while (capacity_ < count) capacity_ *= 4;
  capacity_ = count > most_documents_ ? 0 : std::min(capacity_, most_documents_);
  int64_t words = documents_;
  if (capacity_ > 0) {
    words += document_words(capacity_);
    write_documents(batch.rows, std::span(host_).subspan(static_cast<size_t>(documents_),
                                                         static_cast<size_t>(document_words(capacity_))));
  }
  device_.upload(inputs_, host_.data(), words * kWord);
}

void MicroPlaces::take(const MicroRead& read, std::span<const Tensor> values) {
  if (!has_results()) {
    Result result{read, {}, {}};
    for (const Tensor& t : values) {
      result.values.push_back(t.defined() ? t.meta : TensorMeta{});
      result.bytes.push_back(t.defined() ? result_bytes_ : -1);
      if (t.defined()) result_bytes_ += round_up(t.bytes(), kLine);
    }
    read_.push_back(std::move(result));
    return;
  }
  const Result& result = read_.at(next_++);
  INGOT_CHECK(result.read.depth == read.depth && result.read.metric == read.metric &&
                  result.read.layer == read.layer && result.values.size() == values.size(),
              "'{}' of layer {} is read in the place of '{}' of layer {}", read.metric, read.layer,
              result.read.metric, result.read.layer);
  for (size_t i = 0; i < values.size(); ++i) {
    INGOT_CHECK(values[i].defined() == (result.bytes[i] >= 0) &&
                    (!values[i].defined() || values[i].bytes() == result.values[i].bytes()),
                "{} is read in the place of {}", values[i].meta.str(), result.values[i].str());
    if (values[i].defined())
      device_.copy(static_cast<std::byte*>(results_) + result.bytes[i], values[i].data, values[i].bytes());
  }
}

void MicroPlaces::end_results() const {
  INGOT_CHECK(!has_results() || next_ == read_.size(), "{} of {} reads of a micro-batch", next_,
              read_.size());
}

void MicroPlaces::allocate_results() {
  INGOT_CHECK(!has_results() && result_bytes_ > 0);
  results_ = device_.allocate(result_bytes_);
  device_.name_memory(results_, result_bytes_, "micro-batch", "results");
}

void MicroPlaces::read_results(StepReads& reads, std::shared_ptr<const MicroStats> counts) const {
  const Tensor all(results_, {result_bytes_ / kWord}, DType::i32, device_.kind());
  reads.read({all}, [counts = std::move(counts), results = read_](std::span<const Tensor> block) {
    auto* const first = static_cast<std::byte*>(block[0].data);
    for (const Result& result : results) {
      std::vector<Tensor> values;
      static char nothing;  // an empty tensor has no bytes but is defined
      for (size_t i = 0; i < result.values.size(); ++i)
        values.push_back(result.bytes[i] < 0
                             ? Tensor()
                             : Tensor(result.values[i].bytes() > 0 ? first + result.bytes[i]
                                                                   : static_cast<void*>(&nothing),
                                      result.values[i]));
      counts->add(result.read, values);
    }
  });
}

}  // namespace ingot
