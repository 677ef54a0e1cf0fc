"""Risky words of programs that connect to services, and of converters; see `options`."""

SERVICE_OPTIONS = r"""
docker podman nerdctl: --volumes-from --ipc --cap-add --security-opt --userns --env-file
  --net(work)?[=\x20]host --secret --ssh --tls --context cp$ --runtime --group-add context$ plugin$
curl: -[#0-9aBfgGhiIjJkLlMnNpqRsSvVZ:]*[KoOTcDxE] --engine --stderr --libcurl --etag --hsts
  --alt-svc --abstract-unix --capath --variable --expand --netrc-file --proxy --preproxy --socks
  .*%(output|header)\{ -[a-zA-Z]*[wdH]\x20?@
  --(write-out|json|header|url-query|proxy-header)[=\x20]@ --da[a-z-]*[=\x20]([^\s=]*@|[^\s=]*=@)
  -[a-zA-Z]*F\x20?[^=]*=.*[@<] --fo[a-z]*[=\x20].*[@<] --cert --key (?is:.*file:)
  [^\s"/{\[]*[{\[][^\s"/]*:
wget: -[a-zA-Z]*[aPF] --ap --dir --sav --loa --war --rej --hsts-f --private-k --cert --bas --force-h
ssh: -[46AaCfGgKkMNnqsTtVvXxYy]*[ILRDWwAXYJ]
scp sftp: -F -b -J
rsync: --daemon --config --(read|only-write|write)-batch --log-file --password-file --.*-from
  --temp-dir -T --backup-dir --partial-dir --.*-dest --copy-as
openssl: -engine -provider -config -writerand engine$
sqlite3: --?init --?cmd \.[a-z] (?is:.*(load_extension|writefile|readfile|edit\s*\())
  (?s:.*\n[\x20\t]*\.)
psql: -f -o -L --file --output --log-file (?s:.*\\[!cogiw]) (?is:.*\bprogram\b)
mysql mariadb: --init-command --pager --tee (?is:.*\bsystem\b) (?is:.*\b(source|tee|pager|edit)\b)
  (?s:.*\\[!TPe.])
terraform tofu: -chdir -plugin-dir -backend-config console$
kubectl helm: --kubeconfig --post-renderer edit$ plugin$
gh: alias$ extension$ extensions$ ext$
docker docker-compose podman podman-compose nerdctl: -[a-zA-Z]*f --file --project-dir --iidfile
  --cidfile --metadata --label-file --cgroup --cgroupns --uts --volume-d --use-api --isolation
  --output -o --build-context --cache-(from|to) --allow save$ export$ import$ load$ bake$ stack$
  swarm$ service$ login$ push$ commit$ https?: git@ --device --sysctl --ulimit --oom --annotation
  --init-path --cni --module --hooks-dir --conmon --runtime --storage --root --cdi --connection
  --url --identity --remote --out --syslog --noout kube$ play$ unshare$ --rootfs --gpus --shm
  --link-l --add-host --cpuset --blkio --lxc --credential --detach-keys --trust --orchestrator
  config$
kubectl oc k3s microk8s: -[a-zA-Z]*f --f --filename -k --kustomize --enable --tem --raw --token --as
  --server -s\x20 --cert --client- --cluster --context --user --insecure --proxy --cache-dir exec$
  cp$ run$ debug$ attach$ krew$ port-forward$ proxy$ config$ replace$ --overrides --env-file --from-
  --patch-file --output-dir --custom --tls --www --unix --load-re
helm: --set-file --post --repo[=\x20] -d\x20 --destination --key --ca-file --cert --registry
  --output-dir --repository --kube --plugins --burst registry$ push$ create$ (/|~|\.\.) https?: oci:
  env$ (-f|--values)[=\x20]?(/|~|.*\.\.|https?:)
terraform tofu terragrunt: -+from-module -+state -+out -+test-d -+config -+backend -+plugin -+lock-f
  -+var-file[=\x20](/|~|\S*(?<!\.)\.\.(?!\.)) -+generate -+cli-config (/|~|\S*(?<!\.)\.\.(?!\.))
  login$ -+json-into -+target-dir exec$ run$ run-all$ --terragrunt -+working -+tf-path
ansible ansible-playbook ansible-pull ansible-console ansible-galaxy ansible-vault:
  -[a-zA-Z]*[imMaeTBcuC] --inv --mod --arg --ext --vault --priv --ssh --scp --sftp --conn --become-m
  --user --roles --coll --play -[a-zA-Z]*[rpsU] --url (/|~|\S*(?<!\.)\.\.(?!\.)) -K edit$
  --directory -d --accept --full --exec --task
vagrant: ssh$ plugin$ box$ package$ cloud$ --vagrantfile --provision-with -c$ --command powershell$
  rdp$ upload$ login$ share$ serve$ winrm$
packer pulumi: -+var-file -+machine plugin$ plugins$ -C --cwd --config-file --exec --policy --plugin
  login$ run$ new$ -+tracing -+save-plan -+plan console$ config$ env$ convert$ state$ --remote
aws gcloud az: configure$ --cli-input --endpoint --ca-bundle .*fileb?:// config$ --flags-file
  --cli-auto ssh$ scp$ --configuration --impersonate --account --access-token .*@ cp$ sync$ mv$
  rsync$ ec2-instance-connect$ ssm$ interactive$ shell$ extension$ components$ alias$ --no-verify
gh glab hub: api$ auth$ config$ gist$ secret$ variable$ ssh-key$ gpg-key$ codespace$ cs$ co$ --\x20
  --\w+=- -D --dir --output -O -F --body-file --input --editor -e\x20 --clobber mcp$ duo$ --recover
  --notes-file --upload-pack --config --hostname copilot$ models?$ agent-task$
curl: -[#0-9aBfgGhiIjJkLlMnNpqRsSvVZ:]*n --netrc --proto-d --ssl-s --doh --resolve --connect-to
  --krb --location-t --pubkey --crl --cacert --interface --oauth --aws --sasl --login --trace-c
  --proxy- --dns --delegation --haproxy --mail --request-t --ftp- --quote -[a-zA-Z]*Q --tftp
  --telnet -[a-zA-Z]*t
wget wget2: --input --metalink --trust --content-d --default-p -N --timest --clob --use --bind --dns
  --proxy-u --ca- --crl --rand -[a-zA-Z]*[NE] --adj --html --backup --uns --chunk --stats --plugin
  --local-pl --egd --secure-proto --pinned --http-pass --method --unlink
aria2c axel lftp aget: -
ssh-keygen ssh-add: -D -w -s -S -f -O -Y -I -P -K -H -F -R -e -a -t -M -Z
rsync: -f --filter -F --sock --early --remove-s (/|~|\.\./) [^\s/]*: -[a-zA-Z]*[fFTMe] --chown
  --usermap --groupmap --fake --super --write-dev --copy-dev
sqlite3 sqlite duckdb: -+A -+archive -+zip -+append -+vfs -+unsafe -+deserialize -+f -+ui -+safe
  -+lookaside \s*\.[a-z]
  (?is:.*\b(attach|vacuum|fsdir|zipfile|sqlar|virtual|fts3_tokenizer|lsmode)\b) -+s\x20
  (?is:.*\b(temp_store_directory|data_store_directory|copy|install|load|export|import|read_\w+)\b)
  (?is:.*\b(glob|parquet_scan|csv_scan|sniff_csv|getenv|shell|query_table|pragma)\b) file:
psql: -[a-zA-Z0-9]*[fLovP] --set --var --pset (?s:.*\\)
  (?is:.*\b(pg_\w*(file|dir|read|write)\w*|lo_\w+)\b)
  (?is:.*\b(copy|load|dblink|create\s+(extension|language|function|server))\b)
  .*(service|passfile|ssl\w+)=
pg_dump pg_dumpall pg_restore pg_basebackup createdb vacuumdb: -f --file -D --pgdata -d\x20.*=
  -[a-zA-Z]*f --use-list -L --target -T --dbname.*= --compress .*(service|passfile|ssl\w+)=
mysql mariadb mysqldump mysqladmin mysqlimport mariadb-dump: --de --plugin --load-d --login-p --ssl
  --local --res -r --tab -T --tls --tee --pager -[a-zA-Z]*T --init
  (?is:.*\b(load_file|outfile|dumpfile|infile|delimiter|install|create\s+function)\b)
mongo mongosh: --eval -f --file .*\.m?js$ --shell --nodb --tls --ssl
redis-cli valkey-cli: --eval -x -X --pipe --rdb --functions --tls --cacert --cert --key -u .*://
  (?i:config|eval|evalsha|script|function|fcall|module|slaveof|replicaof|debug|migrate|save|bgsave)$
openssl: -out -keyout -writer s_server$ -nsslog -keylog -sigfile -sess_out -msgfile -genconf
  -CAserial -rand -conf -ssl_config -msgcert -certsout -keyform -provider -propquery
  -pass[a-z]*\x20(file|fd|env): ca$ ocsp$ ts$ fipsinstall$ -modulesdir -CAcreate -signature -certout
convert magick mogrify identify montage composite import display animate conjure stream:
  [a-zA-Z0-9-]+: .*[@|] -write -script -define -path -process -print -display -set -write-mask
  .*\.(msl|mvg|svg|eps|ps|pdf) (?is:.*\.(epsf|epi|ai|ps2|ps3|txt|wmf|emf|xps|pcl|dvi|fig|plt)\b)
  -map -profile -font -tile -texture -authenticate -comment -label -caption -draw -limit -log
  -encipher -decipher -clut (/|~|\S*(?<!\.)\.\.(?!\.))
ffmpeg ffprobe ffplay: -+/ -+report -+progress -+dump -+attach -+passlog -+vstats -+fpre -+[avs]pre
  -+pre -+init_hw -+protocol -+safe -+sdp -+stats_ -+format_w -+[a-z_]*file
  -+f\x20(concat|tee|lavfi|dash|hls|segment|stream|image|x11|v4l|fb|kms|alsa|pulse)
  (?is:.*\.(m3u8?|ffconcat|mpd|txt|avs|vpy|sdp|ffmeta|cue|edl)\b) (/|~|\S*(?<!\.)\.\.(?!\.)) .*\|
  [a-zA-Z][\w+,]*: -i\x20[a-zA-Z][\w+,]*: -+filter\w*script
  -+(vf|af|filter\S*|lavfi)\x20.*(movie|file|text|ladspa|lv2|frei0r|sub|ass|cmd|zmq|model|shader|/)
gs ghostscript ps2pdf: -dNOSAFER -dSAFER= --permit -s\w*= .*[%|] -dDELAYS -d?NOSAFER -c$ -I -o -@ @
  -f$ -_ .*\.ps
pandoc quarto: -F --fi -L --lua -d --def --pdf -t\x20?.*\.lua --to.*\.lua -f\x20?.*\.lua --fr.*\.lua
  --re.*\.lua --wri.*\.lua --data --extr --log --server (/|~|\S*(?<!\.)\.\.(?!\.))
  -o\x20?(/|~|\S*(?<!\.)\.\.(?!\.)) --out.*(/|~|\.\.) --template --resource --self --embed --syn
  --epub --ref --cit --bib --csl --abb -H -B -A --inc https?: --tr --print-d render$ preview$ run$
pdflatex xelatex lualatex latex tex luatex pdftex xetex luahbtex latexmk tectonic bibtex biber
  context: -+she -+enable -+out.*(/|~|\.\.) -+aux.*(/|~|\.\.) -e -r -+pdf\w*= -+latex= -+lua -+ini
  -+fmt -+prog -+cnf -+nosafer -+recorder -+ipc -+translate -+parse -+job.*(/|~|\.\.) .*\\ & -+us
  -+new-vi -+view -+exec -+pvc -+print -+safer- -Z --web --bundle -X (/|~|\S*(?<!\.)\.\.(?!\.))
unzip bsdtar tar gtar:
  (-d|-[a-zA-Z]*C|--directory|--one-top[a-z-]*|--cd|--dir[a-z]*)[=\x20]?(/|~|\S*(?<!\.)\.\.(?!\.))
  -K
man: -[a-zA-Z]*[MTZXR] --man --tro --dit --gx --rec .*/
jq: (?s:.*)(?<![.\w])modulemeta\b
sudoedit visudo vipw crontab: . -
zip: -O --out
apt apt-get aptitude dpkg rpm dnf yum pacman apk zypper brew port: (/|~|\./|\.\.) https?:
  -[a-zA-Z]*[oci] --opt --conf --eval -E --root --instdir --admindir --dbpath --define -D --pipe
  --force --hook --plugin
nc ncat netcat: -[a-zA-Z]*[ecU] --exec --sh-exec --lua --unixsock -o --output --hex-dump
socat: .
dc: -e\x20?.*! .*!
rspec rubocop phpunit phpstan: -[rIcOf] --require --options --default-path --config --bootstrap
  --auto --out --format --init --plugin --extensions --printer --log --coverage --include-path -d -o
  --cache --stderr$
mlr: (?s:.*\b(system|exec|tee|dump|emit|print|split)\b) -[fsno] --from.*\.\. -I --prepipe --load
  --mload
xmllint xsltproc: --output -o --noent --xinclude --shell --catalogs --path --schema --relax --dtd --
  --load --writesubtree --insert
fzf: --prev --bind --execute -[a-z]*[f] --history --walker --become --listen --with-shell
  --header-lines
bat batcat delta: --pager --config --map --diff --lessopen --cache --theme --generate cache$
"""

SUBCOMMANDS = {
    "cargo": "add b bench build c check clean clippy d doc fetch fix fmt generate-lockfile "
    "help info init install locate-project login logout metadata new owner package "
    "pkgid publish r read-manifest remove report rm run rustc rustdoc search t test "
    "tree uninstall update vendor verify-project version yank",
    "docker": "attach build builder buildx commit compose config container context cp create "
    "diff events exec export help history image images import info inspect kill load "
    "login logout logs manifest network node pause plugin port ps pull push rename "
    "restart rm rmi run save search secret service stack start stats stop swarm "
    "system tag top trust unpause update version volume wait",
    "gh": "api attestation auth browse cache codespace completion config cs extension gist "
    "gpg-key help issue label org pr project release repo ruleset run search secret "
    "ssh-key status variable version workflow",
    "kubectl": "annotate api-resources api-versions apply attach auth autoscale certificate "
    "cluster-info completion config cordon cp create debug delete describe diff drain "
    "edit events exec explain expose get help kustomize label logs options patch "
    "plugin port-forward proxy replace rollout run scale set taint top uncordon "
    "version wait",
}
"""The programs' own subcommands; any other is a plug-in, or an alias from a file of the project."""
