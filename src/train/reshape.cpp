// See reshape.h.
#include "train/reshape.h"

#include <algorithm>
#include <limits>

#include "checkpoint/model_state.h"
#include "checkpoint/parameter_part.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "comm/threads.h"
#include "models/model.h"
#include "parallel/ownership.h"
#include "train/run_layout.h"
#include "train/run_ranks.h"

namespace ingot {
namespace {

/// The recipe that the checkpoint was written under; that of an import has only the model.
Recipe recipe_of(const CheckpointReader& reader, const ParallelConfig& parallel) {
  Recipe recipe;
  if (reader.manifest().blobs.contains("recipe"))
    recipe = recipe_from_toml(config_of_blob(reader, "recipe"), reader.path() + ": recipe");
  recipe.model = stored_model_config(reader);
  recipe.parallel = parallel;
  return recipe;
}

/// The parameter that a stored tensor is, or whose optimizer state it is; -1 if there is none.
int parameter_of(const ParameterTable& table, const std::string& name, const StoredTensor& stored) {
  int i = table.find(name);
  if (const auto state = parameter_of_state(name); stored.kind == TensorKind::optimizer && state)
    i = table.find(*state);
  return i >= 0 && table[i].shape == stored.meta.shape ? i : -1;
}

/// What one rank of the new layout writes.
class Share {
 public:
  Share(const CheckpointReader& reader, const Recipe& recipe, World& world)
      : reader_(reader), ranks_(recipe, &world), decoder_(recipe.model) {
    decoder_.freeze(recipe.optimizer.freeze);
    const ParameterTable& table = decoder_.table();
    const PipelineGroups pipe(groups().grid(), world.rank(), ranks_.group_maker(),
                              layout_of(recipe.parallel, recipe.model), table);
    placement_ = pipe.placement(groups().placement());
    if (recipe.parallel.shard == ShardLevel::none) {
      ownership_.emplace(groups(), pipe, table);
    } else {
      const WeightSet shapes(table, placement_, recipe.model_precision(), Backing::nothing);
      ownership_.emplace(groups(), pipe, table, Shards(groups(), shapes));
    }
  }

  const RankGroups& groups() const { return ranks_.groups(); }

  std::vector<Piece> pieces() const {
    std::vector<Piece> pieces;
    for (const auto& [name, stored] : reader_.tensors()) {
      const auto add = [&, &n = name, &s = stored](const Region& region) {
        pieces.push_back({n, s.kind, s.meta.dtype, s.meta.shape, region, nullptr,
                          [&](const Region& part, void* out) { reader_.read(n, part, s.meta.dtype, out); }});
      };
      const int i = parameter_of(decoder_.table(), name, stored);
      if (i < 0) {
        if (ranks_.leads()) add(Region::whole(stored.meta.shape));
        continue;
      }
      const ElementRange mine = ownership_->owned(i);
      if (mine.empty()) continue;
      for (const PartBox& box : boxes_of(decoder_.table()[i], placement_, mine.begin, mine.end))
        add(box.region);
    }
    return pieces;
  }

 private:
  const CheckpointReader& reader_;
  const RunRanks ranks_;
  Decoder decoder_;
  Placement placement_;
  std::optional<Ownership> ownership_;
};

}  // namespace

ReshapeReport reshape_checkpoint(FileSystem& fs, const std::string& from, const std::string& to, int ranks,
                                 const ParallelConfig& parallel) {
  const CheckpointReader reader = CheckpointReader::open(fs, from, Verify::bytes);
  const Recipe recipe = recipe_of(reader, parallel);
  std::vector<ReshapeReport> reports(static_cast<size_t>(ranks));
  run_ranks(
      ranks,
      [&](ThreadRank& world) {
        world.set_limits({.report_seconds = 1e9, .abort_seconds = 1e9});  // a disk may be slow
        const Share share(reader, recipe, world);
        SaveRequest request;
        request.step = reader.step();
        request.pieces = share.pieces();
        request.protection = reader.manifest().protection;
        if (world.rank() == 0) {
          request.blobs = reader.manifest().blobs;
          if (const auto stored = request.blobs.find("recipe"); stored != request.blobs.end())
            stored->second = config_blob(print_config(recipe));
        }
        CheckpointWriterOptions options;
        options.max_file_bytes =
            std::min<int64_t>(options.max_file_bytes, std::max<int64_t>(1 << 20, (int64_t{4} << 30) / ranks));
        options.asynchronous = false;
        options.retention.keep_last = 0;
        options.group = &share.groups().world();
        CheckpointWriter writer(fs, to, options);
        writer.save(request);
        ReshapeReport& report = reports[static_cast<size_t>(world.rank())];
        report.path = to;
        report.grid = share.groups().grid().str();
        report.pieces = static_cast<int64_t>(request.pieces.size());
        for (const Piece& p : request.pieces) report.bytes += p.region.shape.numel() * size_of(p.dtype);
      },
      std::numeric_limits<double>::infinity());
  ReshapeReport all{CheckpointReader::open(fs, to, Verify::structure).path(), reports[0].grid,
                    static_cast<int64_t>(reader.tensors().size())};
  for (const ReshapeReport& r : reports) {
    all.pieces += r.pieces;
    all.bytes += r.bytes;
    all.largest_share = std::max(all.largest_share, r.bytes);
  }
  return all;
}

}  // namespace ingot
