// Checkpoints: written beside the old file and renamed, with a checksum, and locked against a second run.
#include "bilevel/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace onestep {
namespace {

constexpr std::string_view magic = "onestep checkpoint\n";
constexpr std::uint32_t version = 2;

template <class Problem> [[noreturn]] void fail(const std::string& path, std::string_view why) {
  const std::string problem = fmt::format("{} {}", path, why);
  throw Problem(fmt::format("[checkpoint] {}", problem), path, 0, 0, problem);
}
template <class Problem> [[noreturn]] void fail(const std::string& path, std::string_view what, int error) {
  fail<Problem>(path, fmt::format("{}: {}", what, std::generic_category().message(error)));
}

// A file descriptor that is closed.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : id_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~Descriptor() {
    if (id_ >= 0) ::close(id_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  explicit operator bool() const { return id_ >= 0; }
  int id() const { return id_; }

 private:
  int id_;
};

// Whether the name still stands for the file that is open: the run before may have removed it at its end.
bool is_named(int file, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(file, &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_ino == named.st_ino &&
         open.st_dev == named.st_dev;
}

// Where a symbolic link leads, also one that leads to nothing yet: a file that is renamed to the link's name replaces the
// link.
std::filesystem::path behind_links(const std::string& given) {
  constexpr int most = 40;
  std::filesystem::path path = given;
  std::error_code problem;  // what cannot be looked at is no link here, and cannot be locked
  for (int followed = 0; std::filesystem::is_symlink(path, problem); ++followed) {
    const std::filesystem::path to = std::filesystem::read_symlink(path, problem);
    if (problem || followed == most) fail<FileError>(given, "cannot be followed", problem ? problem.value() : ELOOP);
    path = to.is_absolute() ? to : path.parent_path() / to;
  }
  return path;
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace

namespace detail {

// CRC-32 as gzip has it, eight bytes at a time: entry [k][b] is what byte b does k bytes later.
std::uint32_t checksum(std::string_view bytes) {
  using Tables = std::array<std::array<std::uint32_t, 256>, 8>;
  static constexpr Tables tables = [] {
    Tables t{};
    for (std::uint32_t b = 0; b < 256; ++b) {
      std::uint32_t sum = b;
      for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1U) ^ ((sum & 1U) != 0 ? 0xEDB88320U : 0U);
      t[0][b] = sum;
    }
    for (std::size_t k = 1; k < t.size(); ++k)
      for (std::size_t b = 0; b < 256; ++b) t[k][b] = (t[k - 1][b] >> 8U) ^ t[0][t[k - 1][b] & 0xFFU];
    return t;
  }();
  std::uint32_t sum = ~0U;
  std::size_t i = 0;
  const auto byte = [&](std::size_t k) { return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i + k])); };
  for (; i + 8 <= bytes.size(); i += 8) {
    const std::uint32_t low = sum ^ (byte(0) | byte(1) << 8U | byte(2) << 16U | byte(3) << 24U);
    sum = tables[7][low & 0xFFU] ^ tables[6][(low >> 8U) & 0xFFU] ^ tables[5][(low >> 16U) & 0xFFU] ^ tables[4][low >> 24U] ^
          tables[3][byte(4)] ^ tables[2][byte(5)] ^ tables[1][byte(6)] ^ tables[0][byte(7)];
  }
  for (; i < bytes.size(); ++i) sum = (sum >> 8U) ^ tables[0][(sum ^ byte(0)) & 0xFFU];
  return ~sum;
}
std::uint32_t checksum(const Array& values) {
  std::vector<double> entries(static_cast<std::size_t>(values.size()));
  values.copy_to(entries);
  return checksum({reinterpret_cast<const char*>(entries.data()), entries.size() * sizeof(double)});
}

}  // namespace detail

CheckpointFile::CheckpointFile(const std::string& path) : path_(behind_links(path).string()), lock_path_(path_ + ".lock") {
  do {
    if (lock_ >= 0) ::close(lock_);
    lock_ = ::open(lock_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock_ < 0) fail<FileError>(path_, "cannot be locked", errno);
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      ::close(lock_);
      fail<FileError>(path_, "is in use by another run; name another file, or wait for its end");
    }
  } while (!is_named(lock_, lock_path_));
}

CheckpointFile::~CheckpointFile() {
  ::unlink(lock_path_.c_str());
  ::close(lock_);
}

void CheckpointFile::refuse(std::string_view why) const {
  fail<FileError>(path_, fmt::format("{}; it was left as it is: name another file, or remove it to begin anew", why));
}

std::optional<std::string> CheckpointFile::read() const {
  std::error_code unknown;  // a path that cannot be looked at cannot be read either
  if (!std::filesystem::exists(path_, unknown) && !unknown) return std::nullopt;
  // Reading a device may never end, and reading a folder throws what is no Error.
  if (!std::filesystem::is_regular_file(path_, unknown)) refuse("is no ordinary file");
  std::ifstream file(path_, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) refuse("cannot be read");
  if (!bytes.starts_with(magic)) refuse("is no checkpoint of onestep");
  detail::Reader reader(std::string_view(bytes).substr(magic.size()));
  std::uint32_t its_version = 0, sum = 0;
  std::string contents;
  const auto take = [&](auto& field) {
    try {
      reader(field);
    } catch (const Error&) { refuse("is damaged: it is shorter than it says"); }
  };
  take(its_version);
  if (its_version != version) refuse(fmt::format("has version {}, this program reads version {}", its_version, version));
  take(sum);
  take(contents);
  if (!reader.at_end() || detail::checksum(contents) != sum) refuse("is damaged: its checksum is another");
  return contents;
}

void CheckpointFile::write(std::string_view contents) {
  detail::Writer writer;
  writer(version);
  writer(detail::checksum(contents));
  writer(std::string(contents));
  const std::string bytes = fmt::format("{}{}", magic, writer.take()), temporary = path_ + ".tmp";
  {
    const Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    if (!file || !write_all(file.id(), bytes) || ::fsync(file.id()) != 0) {
      const int error = errno;
      ::unlink(temporary.c_str());
      fail<WriteError>(path_, "could not be written (the last one is kept)", error);
    }
  }
  if (::rename(temporary.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    fail<WriteError>(path_, "could not be renamed to", error);
  }
  // The new name, too, is to survive a loss of power; where folders cannot be synchronised that is all there is.
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  if (const Descriptor directory(folder.empty() ? "." : folder.string(), O_RDONLY | O_DIRECTORY); directory)
    ::fsync(directory.id());
}

}  // namespace onestep
