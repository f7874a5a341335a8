{
  description = "[[.Summary]]";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      version = "[[.Version]]";
      archives = {
        x86_64-linux = { url = "[[url "linux" "amd64"]]"; hash = "[[sri "linux" "amd64"]]"; };
        aarch64-linux = { url = "[[url "linux" "arm64"]]"; hash = "[[sri "linux" "arm64"]]"; };
        x86_64-darwin = { url = "[[url "darwin" "amd64"]]"; hash = "[[sri "darwin" "amd64"]]"; };
        aarch64-darwin = { url = "[[url "darwin" "arm64"]]"; hash = "[[sri "darwin" "arm64"]]"; };
      };
    in
    {
      packages = nixpkgs.lib.mapAttrs
        (system: archive:
          let pkgs = nixpkgs.legacyPackages.${system}; in {
            default = pkgs.stdenvNoCC.mkDerivation {
              pname = "sallyport";
              inherit version;
              src = pkgs.fetchurl archive;
              sourceRoot = ".";
              nativeBuildInputs = [ pkgs.installShellFiles ];
              # A static executable: nothing to patch or strip.
              dontPatchELF = true;
              dontStrip = true;
              installPhase = ''
                install -Dm755 sallyport $out/bin/sallyport
                installShellCompletion --bash --name sallyport completions/sallyport.bash
                installShellCompletion --zsh completions/_sallyport
                installShellCompletion --fish completions/sallyport.fish
                installManPage man/*.1
              '';
              meta = {
                description = "[[.Summary]]";
                homepage = "[[.Project]]";
                license = pkgs.lib.licenses.asl20;
                mainProgram = "sallyport";
              };
            };
          })
        archives;
    };
}
