// See writer.h.
#include "checkpoint/writer.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/finite.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/round.h"
#include "checkpoint/layout.h"
#include "checkpoint/safetensors.h"
#include "comm/agree.h"

namespace ingot {

namespace layout = checkpoint_layout;

namespace {

constexpr size_t kCopyBytes = 4 << 20;     // of a thread's turn
constexpr size_t kWriteBytes = 256 << 10;  // hashed, checked and copied by the system: while it is in a cache
const std::string kNoHash(32, '0');        // stands for the hash of data that is not written yet

template <class F>
double seconds_of(F&& work) {
  const double start = monotonic_seconds();
  work();
  return monotonic_seconds() - start;
}

/// The tensor's name, or "name@[0, 128]" for a piece of it.
std::string key_of(const Piece& piece) {
  if (piece.region == Region::whole(piece.global_shape)) return piece.name;
  return fmt::format("{}@{}", piece.name, piece.region.offset.str());
}

std::string layout_of(const Piece& piece) {
  return fmt::format("{} {} {} {} {} {}\n", piece.name, name_of(piece.kind), name_of(piece.dtype),
                     piece.global_shape.str(), piece.region.offset.str(), piece.region.shape.str());
}

const char* file_stem(TensorKind kind) {
  return kind == TensorKind::weight ? "weights" : kind == TensorKind::optimizer ? "optimizer" : "buffers";
}

/// Splits a piece along its first dimension into parts within the limit, but of at least one row.
void split(const Piece& piece, int64_t max_bytes, std::vector<Piece>& out) {
  const int64_t rows = piece.region.shape.rank() ? piece.region.shape[0] : 1;
  const int64_t bytes = piece.region.shape.numel() * size_of(piece.dtype);
  if (bytes <= max_bytes || rows <= 1) {
    out.push_back(piece);
    return;
  }
  const int64_t row_bytes = bytes / rows, step = std::max<int64_t>(1, max_bytes / row_bytes);
  for (int64_t row = 0; row < rows; row += step) {
    Piece part = piece;
    part.region = {};
    for (int d = 0; d < piece.region.shape.rank(); ++d) {
      part.region.offset.push_back(piece.region.offset[d] + (d == 0 ? row : 0));
      part.region.shape.push_back(d == 0 ? std::min(step, rows - row) : piece.region.shape[d]);
    }
    if (piece.data != nullptr) part.data = static_cast<const std::byte*>(piece.data) + row * row_bytes;
    out.push_back(std::move(part));
  }
}

std::string temporary_folder(const std::string& folder, const std::string& name) {
  return fmt::format("{}/{}{}", folder, name, layout::kTemporary);
}

/// `at`: where the bytes lie in the item.
void require_finite(const SafetensorsItem& item, size_t at, const std::byte* data, size_t size,
                    int64_t step) {
  const int64_t width = size_of(item.dtype);
  const int64_t bad = first_not_finite(data, static_cast<int64_t>(size) / width, item.dtype);
  if (bad >= 0)
    throw NotFinite(fmt::format("step {} is not saved: '{}' holds {} at element {}", step, item.name,
                                value_at(data, bad, item.dtype), static_cast<int64_t>(at) / width + bad));
}

void check_piece(const Piece& piece) {
  if (!inside(piece.region, piece.global_shape))
    fail("tensor '{}': a piece at offset {} of shape {} is not inside {}", piece.name,
         piece.region.offset.str(), piece.region.shape.str(), piece.global_shape.str());
  INGOT_CHECK(piece.data != nullptr || piece.source || piece.region.shape.numel() == 0,
              "tensor '{}' has no data", piece.name);
}

}  // namespace

/// One file of the save. Its items point to the caller's memory, later to the snapshot.
struct CheckpointWriter::Shard {
  std::string file;
  std::vector<SafetensorsItem> items;
  struct Source {
    Region region;
    PieceSource fetch;
  };
  std::vector<Source> sources;  ///< of each item; used if it has no data
  struct ManifestEntry {
    StoredTensor* tensor;
    size_t piece;
  };
  std::vector<ManifestEntry> entries;  ///< of each item; its checksum is entered there
  std::string& hash_of(size_t item) const { return entries[item].tensor->pieces[entries[item].piece].hash; }
};

struct CheckpointWriter::Plan {
  Manifest manifest;
  std::vector<Shard> shards;
  int64_t bytes = 0;
  int64_t keep_before = 0;
  std::string layout;  ///< hash of its pieces' names, shapes and places
};

Piece Piece::whole(std::string name, TensorKind kind, const Tensor& tensor) {
  return {std::move(name), kind, tensor.dtype(), tensor.shape(), Region::whole(tensor.shape()), tensor.data};
}

CheckpointWriter::CheckpointWriter(FileSystem& fs, std::string folder, CheckpointWriterOptions options)
    : fs_(fs), folder_(std::move(folder)), options_(std::move(options)) {
  INGOT_CHECK(options_.max_file_bytes > 0);
  agree(
      options_.group, [] { return std::string(); },
      [&](const auto&) {
        layout::create_folders_durably(fs_, folder_);
        layout::remove_leftovers(fs_, folder_);
        sequence_ = layout::newest_sequence(fs_, folder_);
        return std::string();
      });
}

CheckpointWriter::~CheckpointWriter() {
  join();
  if (started_)
    log::warn("step {}: this rank wrote its files, but the checkpoint was never completed",
              started_->manifest.step);
  try {
    if (failure_) std::rethrow_exception(failure_);
  } catch (const std::exception& error) {
    log::error("the last checkpoint could not be written: {}", error.what());
  }
}

CheckpointWriter::Plan CheckpointWriter::make_plan(const SaveRequest& request) const {
  Plan plan;
  plan.manifest.step = request.step;
  plan.manifest.code_version = options_.code_version;
  plan.manifest.protection = request.protection;
  plan.manifest.blobs = request.blobs;
  plan.keep_before = request.keep_before;
  for (const auto& [name, text] : request.blobs) check_blob(name, text);
  std::vector<Piece> pieces;
  Hasher layout;
  for (const Piece& piece : request.pieces) {
    check_piece(piece);
    const std::string of = layout_of(piece);
    layout.update(of.data(), of.size());
    split(piece, options_.max_file_bytes, pieces);
  }
  plan.layout = layout.hex();
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.kind < b.kind; });
  assign_files(plan, pieces);
  for (const Shard& shard : plan.shards) layout_safetensors(shard.items, {});
  return plan;
}

/// Assigns pieces to files in order; a new file begins with each kind, and where the size limit would be
/// exceeded.
void CheckpointWriter::assign_files(Plan& plan, const std::vector<Piece>& pieces) const {
  int number = 0;
  int64_t file_bytes = 0;
  for (size_t p = 0; p < pieces.size(); ++p) {
    const Piece& piece = pieces[p];
    const int64_t bytes = piece.region.shape.numel() * size_of(piece.dtype);
    const bool new_kind = p == 0 || pieces[p - 1].kind != piece.kind;
    if (new_kind) number = 0;
    if (new_kind || file_bytes + bytes > options_.max_file_bytes) {
      const std::string rank = alone() ? "" : fmt::format("rank{:04}-", options_.group->rank());
      plan.shards.emplace_back().file =
          fmt::format("{}{}-{:05}.safetensors", rank, file_stem(piece.kind), ++number);
      plan.manifest.files[plan.shards.back().file] = {0, kNoHash};
      file_bytes = 0;
    }
    Shard& shard = plan.shards.back();
    const auto [it, first] = plan.manifest.tensors.try_emplace(piece.name);
    StoredTensor& tensor = it->second;
    if (first) tensor = {piece.kind, {piece.global_shape, piece.dtype}, {}};
    if (tensor.kind != piece.kind || tensor.meta.dtype != piece.dtype ||
        !(tensor.meta.shape == piece.global_shape))
      fail("tensor '{}': its pieces disagree: {} {} and {} {}", piece.name, name_of(tensor.kind),
           tensor.meta.str(), name_of(piece.kind), TensorMeta{piece.global_shape, piece.dtype}.str());
    const std::string key = key_of(piece);
    shard.items.push_back({key, piece.dtype, piece.region.shape, piece.data});
    shard.sources.push_back({piece.region, piece.source});
    shard.entries.push_back({&tensor, tensor.pieces.size()});
    tensor.pieces.push_back({piece.region, shard.file, key, kNoHash});
    file_bytes += bytes;
    plan.bytes += bytes;
  }
}

/// What a save takes of the disk. `manifests`: of all ranks, which share it. Beside the data there are the
/// manifest, the headers of files, which repeat its names, and the blocks that files leave half empty.
uint64_t CheckpointWriter::bytes_on_disk(const std::vector<std::string>& manifests) const {
  constexpr size_t kBlock = 4096, kFolder = 16 * kBlock;
  const Manifest all = merge_manifests(manifests);
  size_t bytes = kFolder + all.files.size() * kBlock;
  for (const auto& [name, tensor] : all.tensors) bytes += static_cast<size_t>(tensor.meta.bytes());
  for (const std::string& text : manifests) bytes += 2 * text.size();
  return bytes;
}

void CheckpointWriter::prepare(const SaveRequest& request, int64_t saves) {
  Plan plan;
  const auto contribute = [&] {
    plan = make_plan(request);
    return encode_manifest(plan.manifest);
  };
  agree(options_.group, contribute, [&](const auto& manifests) {
    const int64_t keep = options_.retention.keep_last;
    const auto there = static_cast<int64_t>(layout::complete_checkpoints(fs_, folder_, false).size());
    const int64_t more =
        keep > 0 ? std::min(keep + 1 - std::min(there, keep), saves) : std::min<int64_t>(1, saves);
    const uint64_t one = disk_bytes_ = bytes_on_disk(manifests), free = fs_.free_bytes(folder_),
                   needed = one * static_cast<uint64_t>(std::max<int64_t>(0, more));
    const auto text = [](uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
    if (free < needed)
      throw Error(
          fmt::format("the disk of '{}' has {} left, but a checkpoint takes {} and {} more must lie there at "
                      "once ({}): {}",
                      folder_, text(free), text(one), more,
                      keep > 0
                          ? fmt::format("checkpoint.keep_last = {}, and the one that is being written", keep)
                          : "every one is kept",
                      text(needed)),
          fmt::format("free {} of space, lower checkpoint.keep_last, or choose another run.folder",
                      text(needed - free)));
    return std::string();
  });
  layout_ = plan.layout;
  if (options_.asynchronous && saves > 0) snapshot_.reserve(snapshot_bytes(plan));
}

int64_t CheckpointWriter::snapshot_bytes(const Plan& plan) {
  int64_t total = 0;
  for (const Shard& shard : plan.shards)
    for (const SafetensorsItem& item : shard.items)
      total += round_up(item.shape.numel() * size_of(item.dtype), 64);
  return total;
}

void CheckpointWriter::take_snapshot(Plan& plan) {
  snapshot_.reserve(snapshot_bytes(plan));
  struct Copy {
    std::byte* to;
    const std::byte* from;
    size_t size;
  };
  std::vector<Copy> copies;
  std::byte* to = snapshot_.data();
  for (Shard& shard : plan.shards) {
    for (SafetensorsItem& item : shard.items) {
      const auto size = static_cast<size_t>(item.shape.numel() * size_of(item.dtype));
      INGOT_CHECK(item.data != nullptr || size == 0, "'{}' is fetched when it is written: save synchronously",
                  item.name);
      const auto* from = static_cast<const std::byte*>(item.data);
      for (size_t at = 0; at < size; at += kCopyBytes)
        copies.push_back({to + at, from + at, std::min(kCopyBytes, size - at)});
      item.data = to;
      to += round_up(static_cast<int64_t>(size), 64);
    }
  }
  parallel_for(static_cast<int64_t>(copies.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Copy& copy = copies[static_cast<size_t>(i)];
      std::memcpy(copy.to, copy.from, copy.size);
    }
  });
}

void CheckpointWriter::save(const SaveRequest& request) {
  SaveReport report;
  report.waited_seconds = seconds_of([&] { wait(); });
  const std::shared_ptr<Plan> plan = agree_on_plan(request);
  report.step = request.step;
  report.bytes = plan->bytes;
  if (options_.asynchronous) report.copy_seconds = seconds_of([&] { take_snapshot(*plan); });
  start_writing(plan, report);
}

/// Every rank plans its files; rank 0 checks, before anything is copied, that together they make a
/// checkpoint. What it found for a layout holds for the next saves, which mostly have the same one: to read
/// the manifests of all ranks takes long.
std::shared_ptr<CheckpointWriter::Plan> CheckpointWriter::agree_on_plan(const SaveRequest& request) {
  const auto plan = std::make_shared<Plan>();
  const std::string kKnown = "known";
  name_ = agree(
      options_.group,
      [&] {
        *plan = make_plan(request);
        return plan->layout == layout_ ? kKnown : std::string();
      },
      [&](const auto& answers) {
        const auto known = [&](const std::string& answer) { return answer == kKnown; };
        return std::all_of(answers.begin(), answers.end(), known) ? choose_name(request.step) : std::string();
      });
  if (!name_.empty()) return plan;
  name_ = agree(
      options_.group, [&] { return encode_manifest(plan->manifest); },
      [&](const auto& manifests) {
        disk_bytes_ = bytes_on_disk(manifests);
        return choose_name(request.step);
      });
  layout_ = plan->layout;
  return plan;
}

std::string CheckpointWriter::choose_name(int64_t step) {
  const auto text = [](uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  if (const uint64_t free = fs_.free_bytes(folder_); free < disk_bytes_)
    throw Error(
        fmt::format("cannot save step {} in '{}': it needs {}, the disk has {} left", step, folder_,
                    text(disk_bytes_), text(free)),
        "free some space, keep fewer checkpoints, or choose another folder; older checkpoints are untouched");
  int attempt = 1;
  while (fs_.exists(folder_ + "/" + layout::folder_name(step, attempt))) ++attempt;
  const std::string name = layout::folder_name(step, attempt);
  fs_.remove_all(temporary_folder(folder_, name));
  ++sequence_;
  return name;
}

void CheckpointWriter::start_writing(const std::shared_ptr<Plan>& plan, const SaveReport& report) {
  bytes_written_ = 0;
  if (!alone()) started_ = plan;
  busy_ = true;
  if (options_.asynchronous) {
    thread_ = std::thread([this, plan, report] { run(*plan, report); });
  } else {
    run(*plan, report);
    wait();
  }
}

void CheckpointWriter::join() {
  if (thread_.joinable()) thread_.join();
}

std::optional<SaveReport> CheckpointWriter::wait() {
  join();
  if (const auto plan = std::exchange(started_, nullptr)) agree_to_commit(*plan);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return finished_;
}

/// Rank 0 commits the checkpoint if every rank has written its files; otherwise all ranks throw.
void CheckpointWriter::agree_to_commit(const Plan& plan) {
  try {
    agree(
        options_.group,
        [&] {
          if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
          return encode_manifest(plan.manifest);
        },
        [&](const auto& manifests) {
          const std::string name = commit(manifests);
          delete_old(plan);
          return name;
        });
  } catch (const Error&) {
    finished_.reset();
    if (leads()) remove_unfinished();
    throw;
  }
}

/// The body of the thread. A failure is kept for the next save() or wait().
void CheckpointWriter::run(Plan& plan, SaveReport report) noexcept {
  try {
    report.write_seconds = seconds_of([&] { write_files(plan); });
    report.path = folder_ + "/" + name_;
    if (alone()) delete_old(plan);
    finished_ = report;
  } catch (...) {
    failure_ = std::current_exception();
  }
  busy_ = false;
}

/// Writes this rank's files, and commits the checkpoint if there is only one rank.
void CheckpointWriter::write_files(Plan& plan) {
  const std::string temporary = temporary_folder(folder_, name_);
  try {
    fs_.create_folders(temporary);
    for (Shard& shard : plan.shards) write_shard(temporary, shard, plan.manifest);
    if (alone()) commit({encode_manifest(plan.manifest)});
  } catch (const Error&) {
    if (alone()) remove_unfinished();
    throw;
  }
}

/// Turns the written files into a checkpoint: writes the manifest, then renames the folder.
std::string CheckpointWriter::commit(const std::vector<std::string>& manifests) {
  Manifest manifest = merge_manifests(manifests);
  manifest.sequence = sequence_;
  const std::string temporary = temporary_folder(folder_, name_), text = encode_manifest(manifest);
  const auto file = fs_.create(temporary + "/" + kManifestFile);
  file->append(text.data(), text.size());
  file->sync();
  file->close();
  fs_.sync_folder(temporary);
  fs_.rename(temporary, folder_ + "/" + name_);
  fs_.sync_folder(folder_);
  write_file_atomically(fs_, folder_ + "/latest", name_ + "\n");
  return name_;
}

void CheckpointWriter::delete_old(const Plan& plan) {
  RetentionPolicy policy = options_.retention;
  policy.keep_before = plan.keep_before;
  apply_retention(fs_, folder_, policy);
}

/// Frees the space of a failed save at once, because the disk may be full.
void CheckpointWriter::remove_unfinished() {
  const std::string temporary = temporary_folder(folder_, name_);
  try {
    fs_.remove_all(temporary);
  } catch (const Error& error) {
    log::warn("cannot remove the unfinished checkpoint '{}': {}", temporary, error.what());
  }
}

void CheckpointWriter::write_shard(const std::string& folder, Shard& shard, Manifest& manifest) {
  const std::string path = folder + "/" + shard.file;
  const SafetensorsLayout order = layout_safetensors(shard.items, {});
  StoredFile stored{order.header.size(), hash128_hex(order.header.data(), order.header.size())};
  std::vector<std::byte> fetched;
  const auto file = fs_.create(path);
  file->append(order.header.data(), order.header.size());
  for (const size_t i : order.order) {
    const auto* data = static_cast<const std::byte*>(shard.items[i].data);
    const auto size = static_cast<size_t>(shard.items[i].shape.numel() * size_of(shard.items[i].dtype));
    if (data == nullptr && size > 0) {
      fetched.resize(std::max(fetched.size(), size));
      shard.sources[i].fetch(shard.sources[i].region, fetched.data());
      data = fetched.data();
    }
    Hasher hasher;
    for (size_t at = 0; at < size; at += kWriteBytes) {
      const size_t n = std::min(kWriteBytes, size - at);
      hasher.update(data + at, n);
      if (options_.require_finite) require_finite(shard.items[i], at, data + at, n, manifest.step);
      file->append(data + at, n);
      bytes_written_ += static_cast<int64_t>(n);
    }
    shard.hash_of(i) = hasher.hex();
    stored.bytes += size;
  }
  file->sync();
  file->close();

  // Read back what was written: a checkpoint that cannot be loaded must never replace one that can.
  const SafetensorsFile written(fs_, path);
  const auto header = written.header_bytes();
  bool same = hash128_hex(header.data(), header.size()) == stored.header_hash;
  for (size_t i = 0; i < shard.items.size() && same; ++i) {
    const SafetensorsEntry* entry = written.find(shard.items[i].name);
    same = entry != nullptr && written.hash(*entry) == shard.hash_of(i);
  }
  if (!same) fail("'{}' does not read back as it was written: the disk or its file system is faulty", path);
  manifest.files[shard.file] = stored;
}

}  // namespace ingot
