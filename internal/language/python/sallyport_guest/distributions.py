"""The names under which packages are installed, where they are not those of modules.

Each distribution was in PyPI's list in November 2026. A name that is not here may be a
module of the user, or the name of a stranger's package: none is derived from a module's.
"""

from . import BUILTINS as __builtins__

# A module, and the distribution that has it.
INSTALLED_AS = dict(
    pair.split(":")
    for pair in """
    Bio:biopython Crypto:pycryptodome Cryptodome:pycryptodomex IPython:ipython Levenshtein:levenshtein MySQLdb:mysqlclient
    OpenGL:pyopengl OpenSSL:pyopenssl PIL:pillow PyPDF2:pypdf2 Xlib:python-xlib absl:absl-py antlr4:antlr4-python3-runtime
    apiclient:google-api-python-client attr:attrs babel:babel barcode:python-barcode bs4:beautifulsoup4 bson:pymongo
    cassandra:cassandra-driver community:python-louvain configargparse:configargparse consul:python-consul crontab:python-crontab
    cv2:opencv-python-headless daemon:python-daemon dateutil:python-dateutil decouple:python-decouple discord:discord.py
    dns:dnspython docx:python-docx dotenv:python-dotenv editor:python-editor elftools:pyelftools enchant:pyenchant faiss:faiss-cpu
    ffmpeg:ffmpeg-python fitz:pymupdf flask_cors:flask-cors flask_sqlalchemy:flask-sqlalchemy git:gitpython github:pygithub
    gitlab:python-gitlab googleapiclient:google-api-python-client google_auth_oauthlib:google-auth-oauthlib grpc:grpcio
    gridfs:pymongo httplib2:httplib2 igraph:igraph imblearn:imbalanced-learn jose:python-jose jwt:pyjwt
    kafka:kafka-python ldap:python-ldap ldap3:ldap3 llama_cpp:llama-cpp-python lxml_html_clean:lxml-html-clean magic:python-magic
    markdown:markdown mpl_toolkits:matplotlib multipart:python-multipart mysql:mysql-connector-python nacl:pynacl
    netCDF4:netcdf4 odf:odfpy osgeo:gdal pandas_datareader:pandas-datareader paho:paho-mqtt
    pptx:python-pptx psycopg2:psycopg2-binary pwiz:peewee pyasn1_modules:pyasn1-modules pylab:matplotlib
    pythonjsonlogger:python-json-logger rest_framework:djangorestframework saml2:pysaml2 sentencepiece:sentencepiece
    sentence_transformers:sentence-transformers serial:pyserial setuptools:setuptools skimage:scikit-image sklearn:scikit-learn
    slack_sdk:slack-sdk slugify:python-slugify snowflake:snowflake-connector-python socketio:python-socketio
    socks:pysocks sksurv:scikit-survival skopt:scikit-optimize speech_recognition:speechrecognition stdnum:python-stdnum
    telegram:python-telegram-bot tlz:toolz umap:umap-learn usb:pyusb vlc:python-vlc websocket:websocket-client
    whisper:openai-whisper wx:wxpython xdg:pyxdg yaml:pyyaml zmq:pyzmq distutils:setuptools
    google.protobuf:protobuf google.genai:google-genai google.generativeai:google-generativeai google.auth:google-auth
    google.oauth2:google-auth google.api_core:google-api-core google.cloud:google-cloud-core azure.identity:azure-identity
    azure.storage.blob:azure-storage-blob ruamel.yaml:ruamel.yaml
    """.split()
)

# Modules of google.cloud, and what follows "google-cloud-" in the distribution's name.
GOOGLE_CLOUD = dict(
    (pair + ":" + pair.replace("_", "-")).split(":")[:2]
    for pair in """
    aiplatform automl batch bigquery bigquery_datatransfer bigquery_storage bigtable compute container datacatalog dataproc
    datastore dlp documentai error_reporting exceptions:core firestore functions kms language logging monitoring ndb pubsub
    redis resourcemanager:resource-manager run scheduler secretmanager:secret-manager spanner speech storage tasks
    texttospeech translate videointelligence vision workflows
    """.split()
)

# Others whose name to install is the one to import.
SAME_NAME = ("django", "fastapi", "flask", "click", "typer", "tqdm", "psutil", "tabulate", "chardet", "regex", "redis", "pymongo", "psycopg", "shapely", "geopandas", "xgboost", "lightgbm", "nltk", "spacy", "bokeh", "altair", "xlsxwriter", "numba", "cython", "attrs", "orjson", "xarray", "pytz", "pip")  # fmt: skip

# Modules that only Windows has.
WINDOWS = ("win32api", "win32com", "win32con", "win32gui", "win32file", "pythoncom", "pywintypes", "winreg", "msvcrt", "winsound")


def distribution(module, line=""):
    """Return the name under which a module is installed, or None if that is not
    known. The line of the code says what is wanted of a namespace."""
    if module == "google":
        for name in words(line):
            if name.startswith("google."):
                return distribution(name)
    parts = module.split(".")[:4]
    if parts[:2] == ["google", "cloud"] and len(parts) > 2:
        name = GOOGLE_CLOUD.get(parts[2].partition("_v")[0])  # bigquery_v2
        return "google-cloud-" + name if name else None
    for end in range(len(parts), 0, -1):
        name = ".".join(parts[:end])
        if name in INSTALLED_AS:
            return INSTALLED_AS[name]
    return parts[0] if parts[0] in SAME_NAME else None


def words(line):
    """Return the dotted names that an import statement imports."""
    parts = line[:1000].replace(",", " ").split()
    if parts[:1] == ["from"] and len(parts) > 3:
        return ["%s.%s" % (parts[1], name.strip("()")) for name in parts[3:]]
    return parts[1:] if parts[:1] == ["import"] else []


WITH_VALUE = ("-t", "--target", "-i", "--index-url", "-c", "--constraint", "-n", "--name")


def packages_of(arguments):
    """Return the packages among the arguments of an installer, or None if it needs no index."""
    names, local, skip = [], False, False
    for word in arguments:
        if skip:
            skip = False
        elif word == "--no-index" or word.startswith(("--find-links", "-f")):
            return None
        elif word.startswith("-"):
            skip = word in WITH_VALUE
            if word in ("-e", "--editable"):
                local = True
        elif word.endswith((".whl", ".tar.gz", ".zip")) or "/" in word or word == ".":
            local = True
        else:
            name = word
            for i, c in enumerate(word):
                if not (c.isascii() and c.isalnum() or c in "-_."):
                    name = word[:i]
                    break
            after = word[len(name) :]
            if not name or after.startswith("=") and not after.startswith("=="):
                break
            if not name.endswith(".txt"):
                names.append(name)
            if after[:1] in (")", ";", "&", "|", "]"):
                break
    return None if local and not names else names
