class Sallyport < Formula
  desc "[[.Summary]]"
  homepage "[[.Project]]"
  version "[[.Version]]"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "[[url "darwin" "arm64"]]"
      sha256 "[[sum "darwin" "arm64"]]"
    end
    on_intel do
      url "[[url "darwin" "amd64"]]"
      sha256 "[[sum "darwin" "amd64"]]"
    end
  end

  on_linux do
    on_arm do
      url "[[url "linux" "arm64"]]"
      sha256 "[[sum "linux" "arm64"]]"
    end
    on_intel do
      url "[[url "linux" "amd64"]]"
      sha256 "[[sum "linux" "amd64"]]"
    end
  end

  def install
    bin.install "sallyport"
    bash_completion.install "completions/sallyport.bash" => "sallyport"
    zsh_completion.install "completions/_sallyport"
    fish_completion.install "completions/sallyport.fish"
    man1.install Dir["man/*.1"]
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/sallyport version")
  end
end
