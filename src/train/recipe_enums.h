// The words of a recipe: its enums and their names in TOML, those of the optimizers included.
#pragma once
#include <array>

#include "base/config.h"
#include "nn/parameter.h"
#include "optim/groups.h"
#include "optim/muon.h"
#include "optim/schedule.h"

namespace ingot {

enum class PrecisionChoice { f32, bf16 };
constexpr auto enum_names(PrecisionChoice) {
  return std::to_array<EnumName<PrecisionChoice>>(
      {{PrecisionChoice::f32, "f32"}, {PrecisionChoice::bf16, "bf16"}});
}
enum class BatchFit { refuse, down, up };
constexpr auto enum_names(BatchFit) {
  return std::to_array<EnumName<BatchFit>>(
      {{BatchFit::refuse, "refuse"}, {BatchFit::down, "down"}, {BatchFit::up, "up"}});
}
constexpr auto enum_names(ShardLevel) {
  return std::to_array<EnumName<ShardLevel>>(
      {{ShardLevel::none, "none"}, {ShardLevel::optimizer, "optimizer"}, {ShardLevel::full, "full"}});
}
enum class BatchRate { same, sqrt };
constexpr auto enum_names(BatchRate) {
  return std::to_array<EnumName<BatchRate>>({{BatchRate::same, "same"}, {BatchRate::sqrt, "sqrt"}});
}
enum class HeadChoice { automatic, store, recompute, gradient };
constexpr auto enum_names(HeadChoice) {
  return std::to_array<EnumName<HeadChoice>>({{HeadChoice::automatic, "auto"},
                                              {HeadChoice::store, "store"},
                                              {HeadChoice::recompute, "recompute"},
                                              {HeadChoice::gradient, "gradient"}});
}
enum class TokenizerKind { bpe, characters };
constexpr auto enum_names(TokenizerKind) {
  return std::to_array<EnumName<TokenizerKind>>(
      {{TokenizerKind::bpe, "bpe"}, {TokenizerKind::characters, "characters"}});
}
enum class SplitChoice { whole_file, blank_line, marker };
constexpr auto enum_names(SplitChoice) {
  return std::to_array<EnumName<SplitChoice>>({{SplitChoice::whole_file, "whole_file"},
                                               {SplitChoice::blank_line, "blank_line"},
                                               {SplitChoice::marker, "marker"}});
}
enum class SampleChoice { stream, best_fit, random };
constexpr auto enum_names(SampleChoice) {
  return std::to_array<EnumName<SampleChoice>>({{SampleChoice::stream, "stream"},
                                                {SampleChoice::best_fit, "best_fit"},
                                                {SampleChoice::random, "random"}});
}
constexpr auto enum_names(ScheduleKind) {
  return std::to_array<EnumName<ScheduleKind>>({{ScheduleKind::constant, "constant"},
                                                {ScheduleKind::cosine, "cosine"},
                                                {ScheduleKind::wsd, "wsd"},
                                                {ScheduleKind::linear, "linear"},
                                                {ScheduleKind::piecewise, "piecewise"}});
}
constexpr auto enum_names(DecayShape) {
  return std::to_array<EnumName<DecayShape>>({{DecayShape::linear, "linear"},
                                              {DecayShape::cosine, "cosine"},
                                              {DecayShape::sqrt, "sqrt"},
                                              {DecayShape::hold, "hold"}});
}
constexpr auto enum_names(OptimizerKind) {
  return std::to_array<EnumName<OptimizerKind>>({{OptimizerKind::adamw, "adamw"},
                                                 {OptimizerKind::muon, "muon"},
                                                 {OptimizerKind::ademamix, "ademamix"}});
}
constexpr auto enum_names(MuonScale) {
  return std::to_array<EnumName<MuonScale>>(
      {{MuonScale::match_rms, "match_rms"}, {MuonScale::spectral, "spectral"}, {MuonScale::none, "none"}});
}
constexpr auto enum_names(MomentStorage) {
  return std::to_array<EnumName<MomentStorage>>({{MomentStorage::f32, "f32"},
                                                 {MomentStorage::bf16, "bf16"},
                                                 {MomentStorage::bf16_stochastic, "bf16_stochastic"}});
}
constexpr auto enum_names(MomentumForm) {
  return std::to_array<EnumName<MomentumForm>>({{MomentumForm::sum, "sum"}, {MomentumForm::lerp, "lerp"}});
}

}  // namespace ingot
