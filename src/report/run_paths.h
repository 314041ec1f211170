// What the paths in a run's config.toml mean, wherever the run folder lies now. Recipes name folders relative
// to where `ingot run` was started; a run may be moved or copied alone, or with everything around it.
#pragma once
#include <string>

#include "base/config_node.h"
#include "base/file_system.h"

namespace ingot {

class RunPaths {
 public:
  /// `folder`: where the run lies now. `recorded`: its run.folder in config.toml. `working_folder`: where its
  /// last start ran, absolute; "" where no start has recorded it.
  RunPaths(FileSystem& fs, std::string folder, std::string recorded, std::string working_folder);
  /// Of the run in `folder` with this config.toml and its run.json, which may be absent or damaged.
  RunPaths(FileSystem& fs, const std::string& folder, const ConfigNode& config);

  /// Whether `recorded`, from the present folder, is where the run lies.
  bool leads_here() const;
  /// Whether the run was recorded as lying elsewhere.
  bool moved() const;
  const std::string& recorded() const { return recorded_; }
  /// The first of these that exists: inside the run folder, if the run had it there; beside the run folder,
  /// if all was moved together; where the last start found it; as it stands, from the present folder.
  /// `path` may be a pattern. As it stands where none exists, and where it is empty.
  std::string find(const std::string& path) const;

 private:
  bool exists(const std::string& path) const;
  FileSystem& fs_;
  std::string folder_, recorded_, working_folder_;  ///< as given
  std::string base_;  ///< what `recorded` was relative to, if the folder's name still ends with it
};

}  // namespace ingot
