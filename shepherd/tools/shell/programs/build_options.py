"""Risky words of compilers, builds, package managers and checkers; see `options`."""

BUILD_OPTIONS = r"""
cc gcc g++ c++ clang clang++ ld gold lld ar as: @ -wrapper --?fplugin -?-specs -B -fuse-ld -Xlinker
  -Xclang -Xassembler -Xpreprocessor -Wl,.*(plugin|dynamic-linker|@) -load --?plugin --config
rustc: @ -C\x20?link(er|-arg) --codegen -Z
javac java: @ -javaagent -agentlib -agentpath -J --?processor -XX:On -XX:Flags -Xbootclasspath
pytest py.test: -p(?!\x20?no:) --rootdir --basetemp -c --config-file -o --override-ini --log-file
  --junit-?xml[=\x20](/|~|\S*(?<!\.)\.\.(?!\.)) --confcutdir --pastebin
make gmake: -[a-zA-Z]*f --f --m -[a-zA-Z]*I --inc -[a-zA-Z]*E --ev .*[$`;|&<>(]
  -[a-zA-Z]*C\x20?(/|~|\S*(?<!\.)\.\.(?!\.)) --d.*[=\x20](/|~|\S*(?<!\.)\.\.(?!\.)) \w*[^=\w][^=]*=
  (SHELL|\w*MAKE\w*|CC|CXX|CPP|LD|AR|AS|RM|PYTHON\w*|\w*FLAGS|INSTALL)\W?= \w+=.*[^\w.,:+-]
ninja: -f -t -C\x20?(/|~|\S*(?<!\.)\.\.(?!\.))
cmake: -P -C -E --toolchain -D.*(LAUNCHER|PROGRAM|COMPILER|_INCLUDE) --build.*\.\.
npm npx pnpm yarn bunx: -c$ -c= --call --script-shell --shell --prefix --dir$ --cwd --userconfig
  --globalconfig --node-options --git= --git$ --editor --viewer --browser --init-module
  --modules-folder -C$ -C[/.~] --use-yarnrc --yarn-path --use-node --pnpmfile --global-pnpmfile
npm pnpm yarn: exec$ x$ dlx$ explore$ edit$ config$ c$ set$
pip pip3: -t --tar --pref --roo --py --lo --rep -d$ --des -w$ --wh --sr --cac --glo --bui --conf
uv: -t --target --prefix --root --python[=\x20].*[/~] --cache-dir --config
install ginstall: --strip-p
uv poetry pipenv hatch pdm rye conda mamba micromamba mise direnv pixi devbox nix asdf rbenv pyenv
  rustup volta bundle: run$ exec$ x$ tool$ develop$ shell$ --command -c$
cargo: --config -Z --manifest-path.*[=\x20](/|~|\S*(?<!\.)\.\.(?!\.)) --target-dir -C --root \+
  --path[=\x20](/|~|\S*(?<!\.)\.\.(?!\.))
go: --?exec --?toolexec --?vettool --?overlay --?modfile --?ldflags.*ext --?gccgoflags --?compiler
  --?pkgdir --?C[=\x20] --?o[=\x20](/|~|\S*(?<!\.)\.\.(?!\.)) generate$ tool$ -w$
mvn gradle gradlew: -D.*(exec|agent) -I --init-script -s$ --settings -gs -b --include-build -g
  --gradle-user-home
eslint prettier webpack vite jest vitest mocha stylelint babel: -c$ --config --rulesdir
  --resolve-plugins --plugin --parser$ --parser= -r --require --import --loader --globalSetup
  --setupFiles --transform --runner --testRunner --node-option --outputFile --output-file -o$
ruff: --config --output-file -o --cache-dir
mypy: --config-file --python-executable --install-types --.*-report --cache-dir --junit-xml
pylint flake8: --rcfile --load-plugins --init-hook --config --append-config --output
tox nox: -c -f --noxfile -x --workdir --override --result-json
ninja samu: -t -f -C\x20?(/|~|\S*(?<!\.)\.\.(?!\.))
pytest py.test: @ --pdbcls --tx --px --rsync --ds[=\x20] --dc[=\x20] --debug --trace-c --result-log
  --cov-c (/|~|\S*(?<!\.)\.\.(?!\.)) --collect-in -[vqxslh]+(p(?!\x20?no:)|[co])
  --(cov-report|html|css|json-report-file|report-log|benchmark-storage)[=\x20].*([/~]|\.\.)
just: -f --jus --shell --chooser --choose -d --work -c --command -e$ --edit -g --glo --dotenv --set
  --shell-arg --tempdir --cygpath --clear-shell .*/
task go-task: -t --taskfile -d --dir -g --global --init -[a-zA-Z]*[tdg] --completion --experiments
mage: -d -w -f$ -compile -gocmd -goos
rake: -f --rakefile -e --execute -E -p -r --require -R --rakelibdir -I --libdir -g --system
  -[a-zA-Z]*[fergI]
invoke inv fab: -c --collection -r --search-root -f --config --ssh-config -[a-zA-Z]*[crfSHiP]
bazel bazelisk buck buck2: --bazelrc --output_base --output_user_root --run_under --server_javabase
  --host_jvm_args --shell_executable --override_ --registry run$
meson: --native-file --cross-file -C\x20?(/|~|\S*(?<!\.)\.\.(?!\.)) --werror$ --wrap-mode devenv$
  exec$ --setup --reconfigure --pkg-config-path --prefix -D.*=.*/
cmake ctest: -S -B\x20?(/|~|\S*(?<!\.)\.\.(?!\.)) --preset --install -D.*(MODULE|TOOLCHAIN)
  --build-and-test --build-makeprogram --test-command --script -SP --config-file --overwrite
npm npx pnpm yarn bun bunx: --registry --pack-dest --ignore-scripts[=\x20]?(false|no|0)
  --no-ignore-scripts [^@\s]*(git\+|https?:|ssh:|file:|link:|portal:|patch:|exec:|github:)
  (@[^\s@]+/)?[^\s@]*@[a-z]+[:+/] (/|~|\.\./) --cache[=\x20](/|~|\S*(?<!\.)\.\.(?!\.)) --cafile
  --https?-proxy --proxy
npm pnpm yarn bun: publish$ link$ login$ adduser$ token$ owner$ access$ unpublish$ plugin$ deploy$
bun: -e -p$ --eval --print -r --preload --import --define -c$ --config --env-file --extension-order
  --inspect create$ c$ --conditions --main-fields --loader -l --tsconfig-override
deno: eval$ repl$ install$ jupyter$ compile$ -A --allow-(all|run|ffi|sys) --unsafely -c --config
  --import-map --cwd --preload --location --cert --env --reload --lock --node-modules-dir --v8-flags
  https?: (npm|jsr|data): upgrade$ serve$ --ext --unstable
tsc: -p\x20?(/|~|\S*(?<!\.)\.\.(?!\.)) --project[=\x20](/|~|\S*(?<!\.)\.\.(?!\.))
  --outDir[=\x20](/|~|\S*(?<!\.)\.\.(?!\.)) @ --plugins
  --(outFile|declarationDir|tsBuildInfoFile|generateTrace|rootDir)[=\x20](/|~|\S*(?<!\.)\.\.(?!\.))
node: -r --r --import --loader --experimental-l --env-file --inspect --build-snap --test-global
  --icu --openssl --snapshot --diagnostic --report --redirect --prof --cpu-prof --heap -C
  --conditions --experimental-c --watch-path --trace-event-f --run --experimental-s
  --test-reporter[=\x20].*[./]
perl: -[a-zA-Z]*[IMmd]
ruby: -[a-zA-Z]*[rICxSiE] --ext --enable --dump --yjit --mjit --encoding
php: -[a-zA-Z]*[dczBRFEtSf] --define --php-ini --zend-ext --process --server --docroot --run --file
pip pip3: -i --ind --ex -f --fi --tru --ce --cl --ke -C --con -e\x20?(/|~|.*\.\.|[^.\s]*:)
  --ed[a-z]*[=\x20](/|~|.*\.\.|.*:) -[rc]\x20?(/|~|.*\.\.|[a-z+]+:) --use-f --gl
  --(re|cons)[a-z]*[=\x20](/|~|.*\.\.|[a-z+]+:) (/|~|\.\.) [^\s@]*@?\x20?[a-z+]+:/ config$ --bu
  --no-bui --inst.*opt --ab --user-agent --prox
uv: -i --ind --default-index --extra-index --find-links -f --proj --keyring --allow-insecure
  --out-dir[=\x20](/|~|\S*(?<!\.)\.\.(?!\.)) -o[=\x20]?(/|~|\S*(?<!\.)\.\.(?!\.))
  --output-file[=\x20](/|~|\S*(?<!\.)\.\.(?!\.)) --install-dir publish$ (/|~|\.\.)
  [^\s@]*@?\x20?[a-z+]+:/ --env-file --with -C --con --cert --managed --no-build-iso
  -[rc]\x20?(/|~|.*\.\.|[a-z+]+:) -e\x20?(/|~|.*\.\.|[^.\s]*:) self$ auth$
poetry pdm hatch pipenv: -C --dir --proj -P -p$ config$ self$ source$ publish$ plugin$ --output -o
  (/|~|\.\.) [^\s@]*@?\x20?[a-z+]+:/ --pypi-mirror -i$ --index --extra --python --site
pipx: --index-url -i --pip-args --python --spec --editable -e environment$ --system --path
conda mamba micromamba pixi: config$ -c\x20?(/|~|[a-z]+:) --channel[=\x20](/|~|[a-z]+:) -p --prefix
  -f --file --repodata --download-only --root-prefix --rc-file
gem: -s --source -i --install-dir -n --bindir -P --clear-sources -p --http-proxy --config-file
  sources$ push$ owner$ signin$ exec$ --build-root --document -l$ --local (/|~|\.\.)
bundle bundler: --gemfile config$ set$ --path --binstubs --shebang --standalone plugin$ console$
  open$ gem$ exec$ --trust-policy env$
composer: -d --working-dir config$ global$ exec$ run-script$ run$ --repository create-project$
  --plugins
cargo: publish$ login$ logout$ owner$ yank$ install$ uninstall$ --git --reg --index --out-dir
  --artifact --lockfile-path (/|~|.*\.\./) --open --root vendor$ --host-config
rustc: --extern -L --sysroot --emit.*=(/|~|\S*(?<!\.)\.\.(?!\.)) -o\x20?(/|~|\S*(?<!\.)\.\.(?!\.))
  --out-dir[=\x20](/|~|\S*(?<!\.)\.\.(?!\.)) --crate-type -Cl
rustfmt: --config --backup --emit
go: run$ install$ get$ bug$ work$ telemetry$ -{1,2}(asm|gc|ld|gccgo)flags -{1,2}test\.
  -{1,2}outputdir -{1,2}(\w*profile|trace)[=\x20](/|~|\S*(?<!\.)\.\.(?!\.)) .*@
  -{1,2}(installsuffix|tags.*/|work|p?gofile) (/|~) -{1,2}(exec|fuzzcachedir|pgo|buildvcs)
gofmt gofumpt goimports golangci-lint: (/|~|\S*(?<!\.)\.\.(?!\.)) -r -cpuprofile -srcdir -local
  --config -c --fix --custom
cc gcc g++ c++ clang clang++ gfortran ld gold lld: -f?pass-plugin -+gcc-toolchain --?sysroot
  -iplugindir -dumpdir -save-temps= -fdump -M[FDM]{0,2}\x20?(/|~|\S*(?<!\.)\.\.(?!\.))
  -o\x20?(/|~|\S*(?<!\.)\.\.(?!\.)) -T -dT --script -Map --default-script -no-canon -fuse-ld
  --ld-path -rpath --dynamic-linker -plugin -foffload -x\x20?none -toolexec -resource-dir -ivfs
  -fcrash -fauto-profile -shared-libgcc -specs --for-linker --output
clang-tidy clang-check clang-query scan-build: -+load -+vfs -+config -p -+plugins -+extra-arg -+fix
  -+export -+use- -+analyzer -+store -f$
clang-format: -+style=file -+files -+assume
java: --patch-module --upgrade-module -XX: -Xrun -Xlog -Xshare --add-ex -splash
javac: -A -d\x20?(/|~|\S*(?<!\.)\.\.(?!\.)) -s\x20 -h\x20 -X --plugin -Xplugin
mvn gradle gradlew: -f --file -p --project-dir -c --settings-file -P.*/ --define -init --toolchains
  -gt -l --log-file --write-verification [^\s:]+:[^\s:]+:[^\s]+
  -D.*(argLine|jvm|java\.home|basedir|settings|toolchain|Path|repo|File|plugin|script)
dotnet: exec$ tool$ nuget$ new$ --fx --additionalprobingpath --depsfile --runtimeconfig fsi$ -p: /p:
  -property: --property: @ --configfile -s\x20 --source -o\x20?(/|~|\S*(?<!\.)\.\.(?!\.))
  --output.*(/|~|\.\.) --logger -l: -logger --test-adapter --settings --collect -d:
  (/[^\s:]*/|~|\.\.) -r[:\x20] --diag --vstest
swift swiftc: -load-plugin -plugin -Xfrontend -Xcc -Xlinker -Xswiftc -tools-directory -sdk
  -resource-dir --package-path --disable-sandbox --scratch-path --toolset --swift-sdk -module-cache
eslint prettier webpack vite jest vitest mocha stylelint babel rollup esbuild tsx ts-node parcel ava
  nyc c8 karma cypress playwright storybook next nuxt astro tailwindcss postcss biome: -c\b --con
  --rules --use-config --ext-pl --format(ter)?[=\x20].*/ -f\x20.*/ --rootDir --root --roots --preset
  --reporter.*/ --environ --snapshotR --coverageD.*(/|\.\.) --outDir --out-dir --cacheDir
  --cache-location.*(/|~|\.\.) --resolver --dependencyE --globalT --setupFile --watchman --moduleN
  --modulePa --tsconfig --plugins? --parser-o --resolve --print-config --node-flags --import
  --experimental --log-override --outfile --alias --inject --define --banner --footer --serve
  --project[=\x20].*/ -P\x20 --cwd --dir --ui --api --browser --(env|testEnv\w*)[=\x20].*/
ruff black isort flake8 pylint mypy pyright basedpyright pyre bandit pydocstyle yapf autopep8: --con
  -c\x20 --settings -s\x20 --sp --pythonpath --venv-path --verifytypes --createstub --plugin
  -p\x20.*(/|~|\.\.) --project[=\x20].*(/|~|\.\.) --shadow-file --custom-typ --package-root --exec
  --python-ver.*/ --pythonexec --ext.*sect
tox nox: --tox-ini --root --installpkg --sdistonly --workd --conf -e\x20.*/ --default-venv
  --pythons? --extra-python -f --envdir
coverage: run$ --rcfile --data-file -d\x20 -o\x20 --directory --debug
pre-commit: -c --config try-repo$ init-templatedir$ install$ --repo
mkdocs sphinx-build: -f --config-file -c\x20 -C -D -A --theme (/|~|\S*(?<!\.)\.\.(?!\.))
"""
