# shellcheck shell=bash
# Sourced by tools/test, tools/demo and .ci/run: reads their common options, sets up what a build needs, configures and builds.
# After parse_options: `device` (auto, host or cuda), `preset`, `install` (yes or no), and `rest`, the other arguments.

unset CDPATH  # With it, cd prints where it goes.
readonly root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly cuda_minimum=12.8

say() { printf '%s\n' "$*"; }

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

parse_options() {
  device=auto preset=release install=yes rest=()
  while [[ $# -gt 0 ]]; do
    case $1 in
      --device | --preset)
        [[ $# -ge 2 ]] || die "$1 needs a value."
        printf -v "${1#--}" %s "$2"
        shift
        ;;
      --device=* | --preset=*)
        local name=${1%%=*}
        printf -v "${name#--}" %s "${1#*=}"
        ;;
      --no-install) install=no ;;
      *) rest+=("$1") ;;
    esac
    shift
  done
  case $device in auto | host | cuda) ;; *) die "--device is \"$device\"; it is auto, host or cuda." ;; esac
  case $preset in
    release | dev) ;;
    asan | tsan)
      [[ $device != cuda ]] || die "preset $preset builds the host device alone, and --device asks for cuda."
      device=host
      ;;
    *) die "--preset is \"$preset\"; it is release, dev, asan or tsan." ;;
  esac
}

# Whether version $1 is $2 or newer.
at_least() { [[ $(printf '%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

first_gpu() {
  local name
  name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) || true
  [[ -n $name ]] || return 1
  say "$name"
}

# Turns auto into cuda or host, and says so.
choose_device() {
  local gpu
  if [[ $device == cuda ]]; then
    first_gpu >/dev/null || die "--device cuda needs an NVIDIA GPU with its driver, and nvidia-smi finds none here."
  fi
  [[ $device == auto ]] || return 0
  if gpu=$(first_gpu); then
    device=cuda
    say "Device: cuda, the first GPU ($gpu)."
  else
    device=host
    say "Device: host, since there is no NVIDIA GPU here."
  fi
}

# The path of nvcc; the toolkit's own folder is seldom on PATH. CUDACXX may name a program on PATH, as CMake takes it.
find_nvcc() {
  local candidate
  for candidate in "$(command -v "${CUDACXX:-}" || true)" "${CUDAToolkit_ROOT:+$CUDAToolkit_ROOT/bin/nvcc}" \
    "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    [[ -n $candidate && -x $candidate ]] && say "$candidate" && return 0
  done
  return 1
}

# Sets `cuda` to ON or OFF: the CUDA side is built wherever its toolkit is, and must be when a GPU is to run it.
choose_cuda() {
  local nvcc version
  cuda=OFF
  case $preset in asan | tsan) return 0 ;; esac
  [[ -z ${CUDACXX:-} ]] || command -v "$CUDACXX" >/dev/null || die "CUDACXX is \"$CUDACXX\", and there is no such program."
  if nvcc=$(find_nvcc); then
    version=$("$nvcc" --version | sed -nE 's/.*release ([0-9.]+).*/\1/p')
    if at_least "$version" "$cuda_minimum"; then
      cuda=ON
      export CUDACXX=$nvcc
      return 0
    fi
    [[ $device == host ]] || die "weft needs CUDA Toolkit $cuda_minimum or newer, and $nvcc is of $version."
    say "CUDA side: not built, since $nvcc is of $version and weft needs $cuda_minimum or newer."
    return 0
  fi
  [[ $device == host ]] ||
    die "weft needs CUDA Toolkit $cuda_minimum or newer to use the GPU, and there is no nvcc on PATH or in /usr/local/cuda."
  say "CUDA side: not built, since there is no CUDA Toolkit here."
}

# Prints the Debian and Ubuntu packages of what cannot be used here, a line each. What is usable counts, from wherever.
missing_packages() {
  local ready=yes name version scratch
  command -v "${CXX:-c++}" >/dev/null || { say g++ && ready=no; }
  version=$(cmake --version 2>/dev/null | sed -nE '1s/.* ([0-9.]+).*/\1/p') || true
  at_least "${version:-0}" 3.25 || { say cmake && ready=no; }
  command -v ninja >/dev/null || command -v make >/dev/null || { say ninja-build && ready=no; }

  declare -A package=([Catch2]=catch2 [CLI11]=libcli11-dev [nlohmann_json]=nlohmann-json3-dev [spdlog]=libspdlog-dev)
  if [[ $ready == yes ]]; then
    scratch=$(mktemp -d)
    cmake -S "$root/tools/probe" -B "$scratch" 2>&1 | sed -nE 's/^missing (.*)/\1/p'
    rm -rf "$scratch"
  else
    # Without CMake to ask, the package manager knows best.
    for name in "${!package[@]}"; do
      dpkg --status "${package[$name]}" 2>/dev/null | grep -q '^Status: .* installed$' || say "$name"
    done
  fi | while read -r name; do say "${package[$name]}"; done
}

# Installs the packages named, or refuses to.
install_packages() {
  local as_root=()
  [[ $install == yes ]] || die "these packages are missing, and --no-install forbids to install them: $*."
  command -v apt-get >/dev/null || die "these packages are missing, and there is no apt-get to install them: $*."
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || die "these packages are missing, and only root can install them: $*."
    as_root=(sudo)
  fi
  say "Installing with apt: $*"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

# Installs what is missing, or refuses to.
install_missing() {
  local missing
  mapfile -t missing < <(missing_packages)
  [[ ${#missing[@]} -gt 0 ]] || return 0
  install_packages "${missing[@]}"
  mapfile -t missing < <(missing_packages)
  [[ ${#missing[@]} -eq 0 ]] || die "apt installed packages that are too old or that CMake does not find: ${missing[*]}."
}

# Does all set-up and configures the preset in build/<preset>. Arguments go to CMake.
configure() {
  choose_cuda
  install_missing
  if command -v ninja >/dev/null; then export CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}; fi
  say "Configuring build/$preset."
  (cd "$root" && cmake --preset "$preset" -DWEFT_CUDA="$cuda" "$@" >/dev/null)
}

# Arguments go to cmake --build.
build() {
  say "Building build/$preset."
  cmake --build "$root/build/$preset" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" "$@"
}
