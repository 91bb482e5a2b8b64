// Names and types of the run facts.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>

namespace h3diff::probes {

enum class FactKind : std::uint8_t { text, integer };

// docs/dump-format.md section 3. Others are kept if they have a type that a fact can have, else ignored.
inline constexpr std::pair<std::string_view, FactKind> known_facts[] = {
    {"producer", FactKind::text},
    {"pipeline", FactKind::text},
    {"pipeline_version", FactKind::text},
    {"finished", FactKind::integer},
    {"case", FactKind::text},
    {"case_digest", FactKind::text},
    {"checkpoint_digest", FactKind::text},
    {"profile", FactKind::text},
    {"compute_dtype", FactKind::text},
    {"device", FactKind::text},
    {"threads", FactKind::integer},
    {"isa", FactKind::text},
    {"mkl_cbwr", FactKind::text},
    {"deterministic", FactKind::integer},
    {"torch", FactKind::text},
    {"cuda", FactKind::text},
    {"driver", FactKind::text},
    {"sm", FactKind::text},
    {"seed", FactKind::integer},
    {"capture", FactKind::text},
    {"steps_planned", FactKind::integer},
    {"num_layers", FactKind::integer},
    {"num_refiner_layers", FactKind::integer},
    {"hidden_size", FactKind::integer},
    {"num_attention_heads", FactKind::integer},
    {"attention_head_dim", FactKind::integer},
    {"ffn_dim", FactKind::integer},
    {"in_channels", FactKind::integer},
    {"audio_in_channels", FactKind::integer},
    {"text_dim", FactKind::integer},
    {"freq_dim", FactKind::integer},
    {"time_embed_hidden_dim", FactKind::integer},
    {"time_embed_dim", FactKind::integer},
    {"rope_freq_dim", FactKind::integer},
    {"video_patch_dim", FactKind::integer},
    {"adaln_form", FactKind::text},
    {"curve_grid", FactKind::integer},
    {"tensors_over_budget", FactKind::integer},
    {"bundle", FactKind::text},
};

} // namespace h3diff::probes
