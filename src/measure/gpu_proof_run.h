// `ingot gpu prove`: the op table, which is a test program, runs on a device of this machine, and kernels
// whose cases all have the CPU's bits there get a proof (ops/gpu_proof.h). A record of it has one JSON object
// a line and is written while it runs, so that a run which is killed leaves what it knows.
//
//   {"record": "gpu", "date", "device_kind", "architecture", "device", "driver", "program"}
//   {"proof": {...}}                                  as in docs/gpu/proven.json
//   {"failed": {"kernel", "cases": [names]}}
//   {"part": "ops", "seconds", "code"}                what else ran: scripts/gpu
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ops/gpu_proof.h"

namespace ingot {

/// The device that proofs are of, as they state it; no kernel yet. `kind`: cuda (Error where there is none),
/// or sim, whose emulated kernels are a dry run of the same.
KernelProof facts_of_device(const std::string& kind);

/// Begins the record, where there is none in the file.
void begin_record(const std::string& path, const KernelProof& facts);

struct ProofRunOptions {
  std::string kind = "cuda";
  std::string tests;   ///< the test program; "": beside this program
  std::string filter;  ///< tests to run, as GoogleTest names them, for a look: nothing is proven; "": all
  std::string record;  ///< file of the record, which is added to; "": none
  double seconds = 540;
};

struct ProofRun {
  std::vector<KernelProof> proofs;
  std::vector<std::pair<std::string, std::vector<std::string>>> failed;  ///< kernel, its cases
  std::vector<std::pair<std::string, int64_t>> passed;  ///< kernel, cases: not all of its cases ran
  std::vector<std::string> not_run;                     ///< kernels without a case that they take
  std::string trouble;  ///< why the program did not end as it should; "": it did
};
ProofRun prove_kernels(const ProofRunOptions& options);

/// The proofs of a record. Error for other text, for a device that is not a GPU unless `any_device`, and for
/// proofs of other sources than this program's.
std::vector<KernelProof> proofs_of_record(const std::string& text, const std::string& path, bool any_device);
/// One object of a record's facts and parts, for a list of measured rows.
std::string row_of_record(const std::string& text, const std::string& path);

}  // namespace ingot
