// See loader_demand.h.
#include "measure/loader_demand.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/progress.h"
#include "train/phase_sampler.h"

namespace ingot {
namespace {

constexpr int64_t kHeader = 128;  // of a shard file (data/token_shard.cpp)

/// Counts the pages of one sample.
class PagesOfSample {
 public:
  PagesOfSample(const data::DatasetManifest& manifest, const data::TokenSplit& split, int64_t page)
      : split_(split), bytes_(manifest.token_bytes), page_(page) {
    for (const data::SplitInfo& s : manifest.splits)
      if (s.name == split.name()) shards_ = &s.shards;
  }

  /// Tokens [begin, end) of the split and the entries of the documents that they belong to.
  void touch(int64_t begin, int64_t end) {
    end = std::min(end, split_.tokens());
    if (begin >= end) return;
    int64_t first_token = 0, first_document = 0;
    for (size_t s = 0; s < shards_->size(); ++s) {
      const data::ShardInfo& shard = (*shards_)[s];
      const int64_t from = std::max(begin, first_token) - first_token,
                    to = std::min(end, first_token + shard.tokens) - first_token;
      if (from < to) {
        add(s, kHeader + from * bytes_, kHeader + to * bytes_);
        const int64_t index = shard.file_bytes - 8 * (shard.documents + 1);
        const int64_t entry = split_.document_at(first_token + from) - first_document;
        const int64_t last = split_.document_at(first_token + to - 1) - first_document;
        add(s, index + 8 * entry, index + 8 * (last + 2));
      }
      first_token += shard.tokens;
      first_document += shard.documents;
    }
  }
  int64_t pages() const { return static_cast<int64_t>(touched_.size()); }

 private:
  void add(size_t shard, int64_t begin, int64_t end) {
    for (int64_t p = begin / page_; p <= (end - 1) / page_; ++p) touched_.emplace(shard, p);
  }
  const data::TokenSplit& split_;
  const std::vector<data::ShardInfo>* shards_ = nullptr;
  int64_t bytes_, page_;
  std::set<std::pair<size_t, int64_t>> touched_;
};

}  // namespace

double LoaderDemand::pages() const {
  return std::ceil(static_cast<double>(batch * sequence) * token_bytes / static_cast<double>(page));
}

double LoaderDemand::scatter() const {
  return 1 + extra_pages * static_cast<double>(page) / (static_cast<double>(sequence) * token_bytes);
}

LoaderDemand loader_demand(const Recipe& recipe, const PreparedData& data, int64_t samples) {
  const PhaseSampler sampler(recipe, data);
  LoaderDemand d;
  d.of = recipe.run.folder;
  d.batch = sampler.config().batch;
  d.sequence = sampler.config().sequence;
  std::map<std::string, const data::Dataset*> by_name;
  for (const data::Dataset& set : data.sources) by_name[set.name()] = &set;
  std::vector<std::string> names;  // the sampler numbers sources by name
  for (const auto& [name, set] : by_name) names.push_back(name);
  double extra = 0, bytes = 0;
  for (int64_t step = 0; d.samples < samples && step < sampler.config().steps; ++step) {
    const data::Batch batch = sampler.batch(step);
    size_t piece = 0;
    for (int64_t row = 0; row < batch.rows; ++row, ++d.samples) {
      const data::RowOrigin& origin = batch.origins[static_cast<size_t>(row)];
      const data::Dataset& set = *by_name.at(names[static_cast<size_t>(origin.source)]);
      const auto split = set.train();
      PagesOfSample pages(set.manifest(), *split, d.page);
      if (origin.first_token >= 0) pages.touch(origin.first_token, origin.first_token + d.sequence + 1);
      for (; piece < batch.pieces.size() && batch.pieces[piece].begin < (row + 1) * d.sequence; ++piece)
        if (const int64_t document = batch.pieces[piece].document; origin.first_token < 0 && document >= 0)
          pages.touch(split->document_begin(document), split->document_begin(document + 1));
      const auto width = static_cast<double>(set.manifest().token_bytes);
      extra += std::max(0.0, static_cast<double>(pages.pages()) -
                                 static_cast<double>(d.sequence) * width / static_cast<double>(d.page));
      bytes += width;
    }
  }
  if (d.samples > 0) {
    d.extra_pages = extra / static_cast<double>(d.samples);
    d.token_bytes = bytes / static_cast<double>(d.samples);
  }
  return d;
}

std::string to_text(const LoaderDemand& d) {
  std::string text = fmt::format(
      "reading the samples of {} (G {} x s {} tokens of b {:.3g} bytes, pages of P {} bytes)\n"
      "  scatter factor {:.2f}: a sample touches {:.2f} pages more than its {:.2f} (mean of {} samples)\n"
      "  {:.0f} transfers per step",
      d.of, d.batch, d.sequence, d.token_bytes, d.page, d.scatter(), d.extra_pages,
      static_cast<double>(d.sequence) * d.token_bytes / static_cast<double>(d.page), d.samples,
      d.transfers());
  if (d.step_seconds > 0)
    text += fmt::format("; at {} per step this needs {:.0f} IOPS", format_seconds(d.step_seconds),
                        d.needed_iops());
  else
    text += "; give --step-seconds for the IOPS that this needs";
  if (d.most_iops > 0)
    text += fmt::format(
        "\n  this storage reads {:.0f} pages/s: {}", d.most_iops,
        d.step_seconds > 0 && d.step_seconds < d.break_even_seconds()
            ? fmt::format("too few; steps shorter than {} are bound by storage",
                          format_seconds(d.break_even_seconds()))
            : fmt::format("enough for steps of {} or more", format_seconds(d.break_even_seconds())));
  return text + "\n";
}

}  // namespace ingot
